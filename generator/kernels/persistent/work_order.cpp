#include "generator/kernels/persistent/work_order.h"

#include <algorithm>
#include <optional>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/score_mask.h"
#include "generator/launch/ceil_div.h"
#include "templates/base/element.cuh"
#include "templates/scheduling/work_tiles.cuh"

namespace jit {
namespace {

// The part of the L2 cache that keys and values of a section may fill: the fastest of those measured on an H200
// (docs/records/notebook.md).
constexpr double l2_share = 0.3;

// Under a block mask neighboring rows may read keys that lie far apart: those of fewer slices stay in the cache from row
// to row (bench/row_order.py counts what is read).
constexpr int block_mask_section_slices = 4;

}  // namespace

WorkOrder work_order(const AttentionSpec& spec, const WorkSize& size) {
  const int rows = ceil_div(size.seqlen_q, size.tile_q);
  WorkOrder order{.rows = rows, .slices = size.slices, .section_slices = 1, .first_rows = 0, .last_rows = 0};
  if (!drops_keys(spec)) return order;
  const std::optional<BlockSides> sides = block_sides(spec.mask);
  // As kernels schedule rows by a table (TilesByWork in templates/problem/block_mask.cuh).
  const bool has_block_mask = sides && sides->q % size.tile_q == 0 && !has_positions(spec);
  order.section_slices =
      section_slices(size.slices, section_keys(spec, size.l2_bytes) / std::max(1, size.seqlen_kv),
                     has_block_mask ? block_mask_section_slices : fewest_section_slices);
  if (size.seqlen_q <= few_tokens) return order;
  if (has_block_mask) {
    const int wave_rows = ceil_div(size.blocks, std::max(1, size.slices));
    order.first_rows = std::min(wave_rows, ceil_div(rows, 8));
    order.last_rows = std::min({2 * wave_rows, ceil_div(rows, 4), rows - order.first_rows});
  } else {
    order.last_rows = ceil_div(rows, 4);
  }
  return order;
}

int section_keys(const AttentionSpec& spec, std::int64_t l2_bytes) {
  const double key_bytes =
      static_cast<double>(spec.head_dim + spec.value_head_dim()) * element_bytes / spec.gqa_ratio;
  return static_cast<int>(std::min(static_cast<double>(l2_bytes) * l2_share / key_bytes, 1e9));
}

int entries_with_key_words(int tiles_kv, std::int64_t tiles_per_entry, int blocks) {
  constexpr std::int64_t tiles_per_block = 4;
  const std::int64_t wanted = blocks * tiles_per_block / std::max<std::int64_t>(1, tiles_per_entry);
  const std::int64_t fitting = key_word_range_places / std::max(1, tiles_kv);
  return static_cast<int>(std::clamp<std::int64_t>(std::max(wanted, fitting), 1, key_word_range_places));
}

}  // namespace jit
