// Runs the jit-attention tool as a user does, with nothing of the user's environment that concerns it.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/fresh_folder.h"

namespace jit::testing {

struct ToolResult {
  int status = -1;  ///< exit status; -1 when it did not exit by itself
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false); }
};

/// Reads `file` to its end. A terminal whose other side is closed ends with EIO.
inline std::string read_to_end(int file) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

/// The tool that was built with the tests, or another that the environment names.
inline std::string tool_path() {
  const char* other = std::getenv("JIT_ATTENTION_TEST_TOOL");
  return other != nullptr ? other : JIT_ATTENTION_TOOL;
}

/// The tool with working files of its own, and with its own cache folder unless another is given.
class Tool {
 public:
  FreshFolder folder;
  std::string cache_folder;              ///< in place of one of its own
  std::vector<std::string> environment;  ///< further "NAME=value"
  bool hide_gpus = true;
  bool terminal = false;  ///< standard error is a terminal

  std::string cache() const { return cache_folder.empty() ? folder / "cache" : cache_folder; }

  ToolResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), tool_path());
    return spawn(arguments);
  }

  /// Runs the tool with a redirection of the shell, such as "2>&-".
  ToolResult run_redirected(const std::string& redirection, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + redirection, tool_path()});
    return spawn(arguments);
  }

  /// Runs the tool after the shell command `mounts`, in a mount namespace of its own, and `after` behind it.
  /// Status 77 where that is impossible.
  ToolResult run_mounted(const std::string& mounts, std::vector<std::string> arguments,
                         const std::string& after = "true") const {
    const std::string script = "{ " + mounts + "; } >/dev/null 2>&1 || exit 77; \"$0\" \"$@\"; status=$?; " +
                               after + "; exit $status";
    arguments.insert(
        arguments.begin(),
        {"/bin/sh", "-c", "unshare -m true 2>/dev/null || exit 77; exec unshare -m /bin/sh -c \"$0\" \"$@\"",
         script, tool_path()});
    return spawn(arguments);
  }

 private:
  ToolResult spawn(std::vector<std::string> arguments) const {
    std::vector<std::string> variables = {"JIT_ATTENTION_CACHE_DIR=" + cache()};
    if (hide_gpus) variables.push_back("CUDA_VISIBLE_DEVICES=");
    for (const char* name : {"PATH", "HOME", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"}) {
      if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
    }
    variables.insert(variables.end(), environment.begin(), environment.end());
    const std::string out_path = folder / "stdout", err_path = folder / "stderr";

    const int master = terminal ? open_terminal() : -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, terminal ? ptsname(master) : err_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 0600);
    pid_t child = 0;
    std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
    const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("the tool cannot be started");
    ToolResult result;
    if (terminal) result.err = read_to_end(master);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    if (terminal) close(master);
    result.out = read_text(out_path);
    if (!terminal) result.err = read_text(err_path);
    return result;
  }

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }

  static int open_terminal() {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
      throw std::runtime_error("there are no pseudo-terminals");
    }
    return master;
  }
};

/// Status of Tool::run_mounted where nothing can be mounted.
inline constexpr int status_not_mounted = 77;

/// Bad usage or input: status 2, nothing printed, one sentence that says what is meant.
inline void expect_bad_input(const ToolResult& result, const std::string& part_of_sentence) {
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("jit-attention: ")) << result.err;
  EXPECT_NE(result.err.find(part_of_sentence), std::string::npos) << result.err;
}

}  // namespace jit::testing
