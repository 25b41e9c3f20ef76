// The cost of kernels written at run time, one file per question:
//   bench_compile        how long does the compiler take?
//   bench_cache          what does a cached kernel cost, on disk and in memory?
//   bench_process        how long until a new process has its kernel?
//   bench_dispatch       attention(spec) for a spec that is known
//   bench_launch         what does a call cost over a bare launch?         (needs a GPU)
//   bench_tuning         what does the first use cost, tuned or not?       (needs a GPU)
// tests/bench times single parts of the library.
//
//   bench_jit [--benchmark_filter=…] [--benchmark_format=json]
#include "bench/warm_child.h"

int main(int argc, char** argv) {
  if (const auto status = jit::bench::run_child(argc, argv)) return *status;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
