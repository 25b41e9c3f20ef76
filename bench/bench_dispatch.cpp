// attention(spec) for a spec that was asked for before. No device is touched, so an emulated one serves, too.
#include <algorithm>
#include <thread>

#include "bench/bench_support.h"

namespace jit::bench {
namespace {

void up_to_all_cores(benchmark::internal::Benchmark* benchmark) {
  benchmark->ThreadRange(1, std::max(2, static_cast<int>(std::thread::hardware_concurrency())));
}

void dispatch(benchmark::State& state) {
  static const Context context(memory_only());
  const AttentionSpec spec = spec_of(128, true);
  attention(spec, {}, context);
  for (auto _ : state) benchmark::DoNotOptimize(attention(spec, {}, context));
}
BENCHMARK(dispatch)->Unit(benchmark::kNanosecond)->Apply(up_to_all_cores);

}  // namespace
}  // namespace jit::bench
