// Cold compiles: nothing is cached.
#include "bench/bench_support.h"

namespace jit::bench {
namespace {

// CPU time of one compile: of the config that `compile` would choose, or of the one-pass kernel of gradients. Arguments:
// head_dim, causal, gradients.
void cold_compile(benchmark::State& state) {
  const AttentionSpec spec = spec_of(static_cast<int>(state.range(0)), state.range(1) != 0);
  const KernelConfig config = state.range(2) != 0 ? parse_config("family=backward_wgmma")
                                                  : compile(spec, arch, {}, Context(memory_only())).config();
  for (auto _ : state) {
    const Context context(memory_only());
    benchmark::DoNotOptimize(compile(spec, arch, config, context));
  }
}
BENCHMARK(cold_compile)
    ->ArgNames({"head_dim", "causal", "gradients"})
    ->ArgsProduct({{64, 128, 256}, {0, 1}, {0, 1}})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace jit::bench
