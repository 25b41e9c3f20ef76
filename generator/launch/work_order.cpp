#include "generator/launch/work_order.h"

#include <algorithm>

#include "generator/launch/ceil_div.h"
#include "templates/base/element.cuh"
#include "templates/forward_wgmma/smem_layout.cuh"

namespace jit {
namespace {

// The part of the L2 cache that keys and values of a section may fill, and the most and fewest slices: the
// fastest of those measured on an H200 (docs/notebook.md).
constexpr double l2_share = 0.3;
constexpr double fewest_slices = 8, most_slices = 32;
// The work of such short slices evens out by itself.
constexpr int few_queries = 1024;

}  // namespace

WorkOrder work_order(const AttentionSpec& spec, const WorkSize& size) {
  const int rows = ceil_div(size.seqlen_q, size.tile_q);
  WorkOrder order{.rows = rows, .slices = size.slices, .section_slices = 1, .last_rows = 0};
  if (spec.mask == Mask()) return order;
  const double slice_bytes = static_cast<double>(size.seqlen_kv) * (spec.head_dim + spec.value_head_dim()) *
                             element_bytes / spec.gqa_ratio;
  const double fitting = static_cast<double>(size.l2_bytes) * l2_share / std::max(1.0, slice_bytes);
  const int most = static_cast<int>(std::clamp(fitting, fewest_slices, most_slices));
  order.section_slices = ceil_div(size.slices, ceil_div(size.slices, most));
  order.last_rows = size.seqlen_q <= few_queries ? 0 : ceil_div(rows, 4);
  return order;
}

int entries_with_key_words(int tiles_kv, std::int64_t tiles_per_entry, int blocks) {
  constexpr std::int64_t tiles_per_block = 4;
  const std::int64_t wanted = blocks * tiles_per_block / std::max<std::int64_t>(1, tiles_per_entry);
  const std::int64_t fitting = forward_wgmma::key_word_range_places / std::max(1, tiles_kv);
  return static_cast<int>(
      std::clamp<std::int64_t>(std::max(wanted, fitting), 1, forward_wgmma::key_word_range_places));
}

}  // namespace jit
