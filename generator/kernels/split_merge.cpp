#include "generator/kernels/split_merge.h"

#include <algorithm>

#include "templates/split_keys/split_params.cuh"

namespace jit {
namespace {

constexpr double l2_bytes_per_clock = 64;
constexpr double latency_clocks = 2000;  // two dependent reads of recent partial results

}  // namespace

double merge_clocks(const AttentionSpec& spec, double rows, double splits, double clocks_of_split) {
  const int head_dim_v = spec.value_head_dim();
  if (splits <= 1) return 0;
  if (spec.split_keys != 0 || spec.o_descale || !all_merge(spec.gqa_ratio, head_dim_v))
    return splits * clocks_of_split;
  const int columns = result_columns(head_dim_v, spec.mean_score);
  const double bytes = rows * partial_floats(1, columns, column_slices_of_row(true, columns)) * sizeof(float);
  return latency_clocks + 2 * bytes / l2_bytes_per_clock;
}

std::int64_t keys_to_read(const AttentionSpec& spec, const ProblemShape& shape) {
  constexpr std::int64_t entries = 8;
  return std::max<std::int64_t>(shape.seqlen_kv, entries * spec.list_block);
}

}  // namespace jit
