// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "jit/options.h"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/warp_layout.cuh"

namespace jit::forward_split_cluster {

/// Whether a warp holds its queries in registers. Wide ones would spill beside O; those of 8-bit keys are converted,
/// which is done once.
JIT_HOST_DEVICE constexpr bool holds_queries(int head_dim, int key_bytes) {
  constexpr int most_columns = 128;
  return head_dim <= most_columns || key_bytes == 1;
}

/// So many pieces side by side are one block's: 32 bytes of O, which memory writes at once.
inline constexpr int pieces_together = 4;

/// Pieces of a tile of rows that one of the blocks of a cluster ends, at most.
JIT_HOST_DEVICE constexpr int most_own_pieces(int head_dim_v, int cluster) {
  const int groups = rows_per_warp * (head_dim_v / piece_columns) / pieces_together;
  return (groups + cluster - 1) / cluster * pieces_together;
}

/// Byte offsets from the start of dynamic shared memory.
///
///     | warp 0: stage 0: K, V | stage 1 … | warp 1 … | Q | receive buffer: values, states | tile infos of tiles | row starts | barrier |
///
/// When all warps are done with their tiles, the partial result of each replaces them.
struct SmemLayout {
  int v;  ///< in a stage
  int stage_bytes;
  int queries;
  int receive_buffer_values;  ///< float4 for each piece of each block of the cluster
  int receive_buffer_states;  ///< RowState for the same
  int key_tile_infos;         ///< KeyTileInfo for each stage of each warp
  int row_starts;  ///< pointers to the rows of a tile of keys and of values in pages, for each warp
  int barrier;     ///< of the receive buffer
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int query_bytes;  ///< of an element of q
  int key_bytes;    ///< of k and v
  int cluster;
  int block_warps;
  int tile_kv;
  int stages;
  bool has_pages;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  SmemAllocator place;
  SmemLayout layout{};
  layout.v = sizes.tile_kv * padded_head_dim(sizes.head_dim) * sizes.key_bytes;
  layout.stage_bytes = layout.v + sizes.tile_kv * padded_head_dim(sizes.head_dim_v) * sizes.key_bytes;
  const int tiles = sizes.block_warps * sizes.stages * layout.stage_bytes;
  const int results = result_bytes(sizes.block_warps * rows_per_warp, sizes.head_dim_v);
  place.tiles(tiles > results ? tiles : results);
  layout.queries = place.tiles(rows_per_warp * padded_head_dim(sizes.head_dim) * sizes.query_bytes);
  const int pieces = sizes.cluster * most_own_pieces(sizes.head_dim_v, sizes.cluster);
  layout.receive_buffer_values = place.tiles(pieces * piece_columns * 4);
  layout.receive_buffer_states = place.numbers(pieces * 8);
  layout.key_tile_infos =
      place.numbers(sizes.block_warps * sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.row_starts = place.numbers(sizes.has_pages ? sizes.block_warps * sizes.tile_kv * 2 * 8 : 0);
  layout.barrier = place.barrier();
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_split_cluster
