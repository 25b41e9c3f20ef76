// Times parts of the library that no call shows alone: the disk cache and the dispatch table with up to
// 10,000 entries, and NVRTC without a program to compile. What users see is measured by bench/bench_jit.cpp.
//
//   bench_parts [--benchmark_filter=…] [--benchmark_format=json]
#include "bench/warm_child.h"

int main(int argc, char** argv) {
  if (const auto status = jit::bench::run_child(argc, argv)) return *status;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
