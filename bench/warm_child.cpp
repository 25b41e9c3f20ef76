#include "bench/warm_child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

extern char** environ;

namespace jit::bench {
namespace {

constexpr std::string_view child_option = "--warm-process=";

// Whether a child found its kernel in this folder.
bool run_warm_process(const std::string& folder) {
  std::string option = std::string(child_option) + folder;
  char name[] = "warm_child";
  char* arguments[] = {name, option.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  return posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0 &&
         waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

AttentionSpec child_spec() { return spec_of(128, true); }

void start_processes(benchmark::State& state, const std::string& folder) {
  for (auto _ : state) {
    if (!run_warm_process(folder)) state.SkipWithError("the child failed");
  }
}

std::optional<int> run_child(int argc, char** argv) {
  const std::string_view option = argc == 2 ? argv[1] : "";
  if (!option.starts_with(child_option)) return std::nullopt;
  const std::string folder(option.substr(child_option.size()));
  return compile(child_spec(), arch, {}, Context(cached_in(folder))).cached() ? 0 : 1;
}

}  // namespace jit::bench
