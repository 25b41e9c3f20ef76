#include "generator/kernels/part_merge.h"

#include "templates/split_keys/split_params.cuh"

namespace jit {
namespace {

constexpr double l2_bytes_per_clock = 64;
constexpr double latency_clocks = 2000;  // two reads one after another, of parts that have just been written

}  // namespace

double merge_clocks(double rows, double head_dim_v) {
  constexpr double states = 1 + 2.0 / strip_columns;
  const double bytes = rows * head_dim_v * states * sizeof(float);
  return latency_clocks + 2 * bytes / l2_bytes_per_clock;
}

}  // namespace jit
