// The layout of shared memory of a block that sums a gradient of wide heads. Host and NVRTC compile this file; the
// generated program asserts that both compute the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "pipeline/smem_allocator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_wide {

/// Rows of a tile of queries, and of keys: those of one warpgroup.
inline constexpr int tile_rows = rows_per_warpgroup;
/// Warpgroups that sum a gradient. Each has half of its columns.
inline constexpr int output_warpgroups = 2;
/// Tiles of weights, P or dS, that may wait to be multiplied, and those that a block may be ahead of another one.
inline constexpr int stages_weights = 2, stages_exchange = 2;

/// Columns of a gradient that a warpgroup sums: whole panels, of which the last ones may be empty.
JIT_HOST_DEVICE constexpr int output_columns(int head_dim) {
  return (panel_count(head_dim) + output_warpgroups - 1) / output_warpgroups * panel_columns(head_dim);
}
/// Columns of one product, which are a stage: half of a warpgroup's where these are whole panels.
JIT_HOST_DEVICE constexpr int part_columns(int head_dim) {
  const int columns = output_columns(head_dim);
  return columns % (2 * panel_columns(head_dim)) == 0 ? columns / 2 : columns;
}
JIT_HOST_DEVICE constexpr int part_bytes(int head_dim) {
  return tile_rows * part_columns(head_dim) * element_bytes;
}
JIT_HOST_DEVICE constexpr int panel_bytes(int head_dim) {
  return tile_rows * panel_columns(head_dim) * element_bytes;
}
JIT_HOST_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int register_panels;    ///< of Q or K, which stay in registers
  int register_panels_v;  ///< of dO or V
  int panels;             ///< stages
  int parts;              ///< stages
  bool of_queries;        ///< whether a block has queries; else it sums dK or dV of keys, as one of a pair
};

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
/// The first panels of what a block owns may stay in registers, and have no place.
///
///     | Q | dO | panel, stage 0 | … | part, stage 0 | … | dS, stage 0 | … |              whether there are more | barriers |
///     | K or V | panel, stage 0 | … | part, stage 0 | … | P or dS, stage 0 | … | exchange | whether there are more | barriers |
struct SmemLayout {
  int own;                 ///< Q or K
  int own_v;               ///< dO or V
  PipelinePlace panels;    ///< of the operands of scores
  PipelinePlace parts;     ///< of the operands of the gradient
  PipelinePlace weights;   ///< P or dS
  PipelinePlace exchange;  ///< from the block of dV to that of dK
  int has_more;            ///< int for each stage of weights
  int own_full;            ///< barrier
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int float_bytes = 4;
  const int d = sizes.head_dim, dv = sizes.head_dim_v;
  const int own = (panel_count(d) - sizes.register_panels) * panel_bytes(d),
            own_v = (panel_count(dv) - sizes.register_panels_v) * panel_bytes(dv);
  SmemAllocator place;
  SmemLayout layout{};
  if (sizes.of_queries) {
    layout.own = place.tiles(own);
    layout.own_v = place.tiles(own_v);
  } else {
    layout.own = place.tiles(larger(own, own_v));
    layout.own_v = layout.own;
  }
  layout.panels.tiles = place.tiles(sizes.panels * larger(panel_bytes(d), panel_bytes(dv)));
  layout.parts.tiles =
      place.tiles(sizes.parts * (sizes.of_queries ? part_bytes(d) : larger(part_bytes(d), part_bytes(dv))));
  layout.weights.tiles = place.tiles(stages_weights * panel_tile_bytes(tile_rows, tile_rows));
  if (!sizes.of_queries)
    layout.exchange.tiles = place.tiles(stages_exchange * tile_rows * tile_rows * float_bytes);
  layout.has_more = place.words(stages_weights * float_bytes);
  place.barriers(layout.panels, sizes.panels);
  place.barriers(layout.parts, sizes.parts);
  place.barriers(layout.weights, stages_weights);
  if (!sizes.of_queries) place.barriers(layout.exchange, stages_exchange);
  layout.own_full = place.barrier();
  layout.total = place.total();
  return layout;
}

}  // namespace jit::backward_wide
