// A new process, from exec to a ready cubin from a warm disk cache to exit. NVRTC is never opened.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/filled_cache.h"

extern char** environ;

namespace jit::bench {
namespace {

constexpr std::string_view child_option = "--warm-process=";

AttentionSpec wanted() { return spec_of(128, true); }

// Whether a child that wants the spec's kernel from this folder found it there.
bool run_warm_process(const std::string& folder) {
  std::string option = std::string(child_option) + folder;
  char name[] = "bench_jit";
  char* arguments[] = {name, option.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  return posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0 &&
         waitpid(child, &status, 0) == child && status == 0;
}

void start_processes(benchmark::State& state, const std::string& folder) {
  for (auto _ : state) {
    if (!run_warm_process(folder)) state.SkipWithError("the child failed");
  }
}

void warm_process(benchmark::State& state) {
  const TemporaryFolder folder;
  compile(wanted(), arch, {}, Context(cached_in(folder.path())));
  start_processes(state, folder.path());
}
BENCHMARK(warm_process)->Unit(benchmark::kMillisecond)->UseRealTime();

// With as many other kernels in the folder.
void warm_process_among(benchmark::State& state) {
  const FilledCache& cache = FilledCache::of(static_cast<std::size_t>(state.range(0)));
  const CompiledKernel kernel = compile(wanted(), arch, {}, Context(cached_in(cache.path())));
  start_processes(state, cache.path());
  std::filesystem::remove(entry_path(cache.path(), kernel.key()));
}
BENCHMARK(warm_process_among)
    ->ArgName("entries")
    ->RangeMultiplier(10)
    ->Range(10, 10'000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

std::optional<int> run_child(int argc, char** argv) {
  const std::string_view option = argc == 2 ? argv[1] : "";
  if (!option.starts_with(child_option)) return std::nullopt;
  const std::string folder(option.substr(child_option.size()));
  return compile(wanted(), arch, {}, Context(cached_in(folder))).cached() ? 0 : 1;
}

}  // namespace jit::bench
