// Runs the command line of jit-attention.
#include "run_tool.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <string_view>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/version.h>
#include <CLI/CLI.hpp>

#include "command.h"

namespace jit::tool {
namespace {

int status_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid_spec:
    case ErrorCode::invalid_argument:
    case ErrorCode::no_valid_config:
      return status_bad_input;
    default:
      return status_failure;
  }
}

int complain(int status, const std::string& message) {
  print_to_stderr(fmt::format("jit-attention: {}\n", one_line(message)));
  return status;
}

// Prevents an end without an error message, and messages in output files.
void prepare_process() {
  // Exceeding the file-size limit then fails the write (EFBIG).
  std::signal(SIGXFSZ, SIG_IGN);
  // Prevents opened files from becoming a closed standard stream; writes to this one fail as to a closed one.
  while (true) {
    const int file = open("/dev/null", O_RDONLY);
    if (file > STDERR_FILENO) close(file);
    if (file < 0 || file > STDERR_FILENO) break;
  }
}

// `status`, or failure when the printed text could not be written.
int flush_output(int status) {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written || status != status_ok) return status;
  return complain(status_failure, "standard output cannot be written");
}

int run_command(const Commands& commands) {
  try {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
  } catch (const BadInput& error) {
    return complain(status_bad_input, error.what());
  } catch (const Error& error) {
    complain(status_of(error), error.message());
    if (error.code() == ErrorCode::compile_failed) print_to_stderr(error.log() + "\n");
    return status_of(error);
  } catch (const std::bad_alloc&) {
    return complain(status_failure, "there is not enough memory for this");
  } catch (const std::exception& error) {
    return complain(status_failure, error.what());
  }
  return status_ok;
}

}  // namespace

int run_tool(int argc, const char* const* argv) {
  prepare_process();
  CLI::App app("Generates, compiles, tunes and inspects attention kernels.", "jit-attention");
  app.set_version_flag("--version", JIT_ATTENTION_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 wrong usage or input. The settings that `info` lists are environment "
      "variables.");
  Commands commands;
  add_all(app, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return flush_output(app.exit(success));
  } catch (const CLI::RequiredError& error) {
    // Names the misspelled command or option.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    const std::string_view what = !unknown.empty() && unknown[0].starts_with('-') ? "option" : "command";
    return complain(status_bad_input,
                    unknown.empty()
                        ? fmt::format("{}; see jit-attention --help", error.what())
                        : fmt::format("there is no {} '{}'; see jit-attention --help", what, unknown[0]));
  } catch (const CLI::ParseError& error) {
    for (const std::string& word : app.remaining(/*recurse=*/true)) {
      if (word == "--v-along-sequence")
        return complain(status_bad_input, word +
                                              " is no option any more: v of fp8 has a row for each key, "
                                              "which is faster; leave it out");
    }
    return complain(status_bad_input, fmt::format("{}; see jit-attention --help", error.what()));
  }
  return flush_output(run_command(commands));
}

}  // namespace jit::tool
