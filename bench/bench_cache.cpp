// Hits: a kernel that this process has, and one that is on disk.
#include "bench/bench_support.h"

namespace jit::bench {
namespace {

// compile(spec) again in one context: the program is written and its key made, and the kernel is in memory.
void memory_hit(benchmark::State& state) {
  const Context context(memory_only());
  const AttentionSpec spec = spec_of(128, true);
  const KernelConfig config = compile(spec, arch, {}, context).config();
  for (auto _ : state) benchmark::DoNotOptimize(compile(spec, arch, config, context));
}
BENCHMARK(memory_hit)->Unit(benchmark::kMicrosecond);

// A hit in memory whose config has to be chosen again.
void memory_hit_unchosen(benchmark::State& state) {
  const Context context(memory_only());
  const AttentionSpec spec = spec_of(128, true);
  compile(spec, arch, {}, context);
  for (auto _ : state) benchmark::DoNotOptimize(compile(spec, arch, {}, context));
}
BENCHMARK(memory_hit_unchosen)->Unit(benchmark::kMicrosecond);

// A new context that takes its kernel from a warm disk cache, in a running process.
void warm_context(benchmark::State& state) {
  const TemporaryFolder folder;
  const AttentionSpec spec = spec_of(128, true);
  const KernelConfig config = compile(spec, arch, {}, Context(cached_in(folder.path()))).config();
  for (auto _ : state) {
    const Context context(cached_in(folder.path()));
    benchmark::DoNotOptimize(compile(spec, arch, config, context));
  }
}
BENCHMARK(warm_context)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace jit::bench
