// A new process, from exec to a ready cubin from a warm disk cache to exit. NVRTC is never opened.
#include "bench/warm_child.h"

namespace jit::bench {
namespace {

void warm_process(benchmark::State& state) {
  const TemporaryFolder folder;
  compile(child_spec(), arch, {}, Context(cached_in(folder.path())));
  start_processes(state, folder.path());
}
BENCHMARK(warm_process)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace jit::bench
