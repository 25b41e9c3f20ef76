#include "runtime/disassembler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/error.h>

#include "runtime/environment.h"
#include "runtime/python_packages.h"

namespace jit {
namespace {

namespace fs = std::filesystem;

// A folder that only this user can enter, removed with its contents.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string pattern = environment("TMPDIR");
    if (!pattern.starts_with('/')) pattern = "/tmp";
    pattern += "/jit-attention-XXXXXX";
    if (!mkdtemp(pattern.data())) {
      throw Error(ErrorCode::io_error, "disassemble", "TMPDIR",
                  fmt::format("{} cannot be created: {}", pattern, std::strerror(errno)));
    }
    path_ = pattern;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_private_file(const std::string& path, std::span<const std::byte> bytes) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool written = descriptor >= 0;
  while (written && !bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    written = count > 0;
    if (written) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!written) {
    throw Error(ErrorCode::io_error, "disassemble", "cubin",
                fmt::format("{} cannot be written: {}", path, std::strerror(error)));
  }
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

struct ProgramOutput {
  std::string text;  // standard output and standard error
  bool succeeded = false;
};

ProgramOutput run_program(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ProgramOutput output;
  if (error == 0) {
    output.text = read_all(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    output.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  } else {
    output.text = std::strerror(error);
  }
  close(ends[0]);
  return output;
}

// Folders of programs in wheels: NVIDIA's (nvidia-cuda-nvdisasm, nvidia-cuda-nvcc) of CUDA 13 and 12, and
// Triton's.
constexpr const char* wheel_folders[] = {"nvidia/cu13/bin", "nvidia/cuda_nvcc/bin",
                                         "triton/backends/nvidia/bin"};

std::vector<std::string> tool_folders() {
  std::vector<std::string> folders = split_paths(environment("PATH"));
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = environment(variable); !root.empty()) folders.push_back(root + "/bin");
  }
  folders.push_back("/usr/local/cuda/bin");
  std::erase_if(folders, [](const std::string& folder) { return !folder.starts_with('/'); });
  std::vector<PackagesFolder> packages = packages_of_environment();
  packages.insert(packages.begin(), packages_beside_this_code());
  for (const PackagesFolder& each : packages) {
    for (const char* wheel : wheel_folders) {
      std::error_code error;
      const fs::path folder = fs::path(each.path) / wheel;
      if (fs::is_directory(folder, error)) folders.push_back(folder);
    }
  }
  return folders;
}

}  // namespace

Disassembly disassemble(std::span<const std::byte> cubin) {
  const std::vector<std::vector<std::string>> tools = {{"nvdisasm", "--print-code"},
                                                       {"cuobjdump", "--dump-sass"}};
  const std::vector<std::string> folders = tool_folders();
  Disassembly disassembly;
  for (const std::vector<std::string>& tool : tools) {
    for (const std::string& folder : folders) {
      const std::string program = folder + "/" + tool[0];
      if (access(program.c_str(), X_OK) != 0) continue;
      const PrivateFolder temporary;
      const std::string file = temporary.file("kernel.cubin");
      write_private_file(file, cubin);
      ProgramOutput output = run_program({program, tool[1], file});
      if (output.succeeded) {
        disassembly.text = std::move(output.text);
        disassembly.tool = program;
        disassembly.missing.clear();
        return disassembly;
      }
      disassembly.missing += fmt::format("{} failed: {}\n", program, output.text);
    }
  }
  if (disassembly.missing.empty()) {
    disassembly.missing = fmt::format(
        "there is no SASS because neither nvdisasm nor cuobjdump was found in {}, nor in a wheel of Python; "
        "`pip install nvidia-cuda-nvdisasm` has nvdisasm, as has a CUDA toolkit (package cuda-nvdisasm), "
        "whose "
        "bin folder PATH or CUDA_HOME names",
        fmt::join(folders, ":"));
  }
  return disassembly;
}

}  // namespace jit
