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

// The share of the L2 cache for keys and values of a section: the fastest measured on an H200
// (docs/records/notebook.md).
constexpr double l2_share = 0.3;

// The most slices per section under a block mask: neighboring rows may read distant keys, and fewer slices'
// keys stay in the cache from row to row (bench/row_order.py counts reads).
constexpr int block_mask_section_slices = 4;

double key_bytes_of(const AttentionSpec& spec) {
  return static_cast<double>(spec.head_dim + spec.value_head_dim()) * element_bytes / spec.gqa_ratio;
}

// At least as many as fit the cache: rows may read blocks anywhere, so more slices would read from memory.
int fewest_of_block_mask(const AttentionSpec& spec, const WorkSize& size) {
  const double slice_bytes = key_bytes_of(spec) * std::max(1, size.seqlen_kv);
  return std::clamp(static_cast<int>(static_cast<double>(size.l2_bytes) / slice_bytes), 1,
                    block_mask_section_slices);
}

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
                     sides ? fewest_of_block_mask(spec, size) : fewest_section_slices);
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
  return static_cast<int>(std::min(static_cast<double>(l2_bytes) * l2_share / key_bytes_of(spec), 1e9));
}

int entries_with_key_words(int tiles_kv, std::int64_t tiles_per_entry, int blocks) {
  constexpr std::int64_t tiles_per_block = 4;
  const std::int64_t wanted = blocks * tiles_per_block / std::max<std::int64_t>(1, tiles_per_entry);
  const std::int64_t fitting = key_word_range_places / std::max(1, tiles_kv);
  return static_cast<int>(std::clamp<std::int64_t>(std::max(wanted, fitting), 1, key_word_range_places));
}

}  // namespace jit
