// A cold compile of nothing.
#include "bench/bench_support.h"
#include "generator/build/image.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"

namespace jit::bench {
namespace {

// The smallest program: what NVRTC itself costs.
void cold_compile_empty(benchmark::State& state) {
  const Context context(memory_only());
  const Program program{
      .name = "empty", .source = "extern \"C\" __global__ void empty() {}\n", .threads = 32};
  int count = 0;
  for (auto _ : state) {
    Program other = program;
    other.source += "// " + std::to_string(++count) + "\n";
    benchmark::DoNotOptimize(build_image(*Access::state(context), other, {arch}));
  }
}
BENCHMARK(cold_compile_empty)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace jit::bench
