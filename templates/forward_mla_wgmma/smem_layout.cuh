// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "mainloop/output_columns.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Keys per step: two tiles of the widest rows have room beside their queries.
inline constexpr int tile_kv = 64;
/// Tiles of keys whose P may wait to be multiplied, and those that are told of ahead.
inline constexpr int stages_p = 1, stages_infos = 4;

/// Parts of a tile of keys that come and are released each by itself (mainloop/key_parts.cuh).
JIT_HOST_DEVICE constexpr int key_parts(int head_dim, int head_dim_v) {
  return own_parts(head_dim_v) * output_warpgroups + (head_dim > head_dim_v ? 1 : 0);
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | tile of keys, stage 0 | … | P | row factors | flags | tile infos of keys | of splits | barriers |
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;       ///< tiles of keys; barriers for each part, of all stages
  PipelinePlace p;       ///< P of tiles of keys
  PipelinePlace infos;   ///< of tiles of keys
  PipelinePlace splits;  ///< SplitInfo, or SpanInfo, for each stage
  int p_flags;           ///< int of each warp's rows, for each stage of P
  int row_factors;       ///< float of each row, for each stage of P
  int key_tile_infos;    ///< KeyTileInfo for each stage
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int stages;
  bool has_spans;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4, warps = 4;
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim));
  layout.k.tiles = place.tiles(sizes.stages * panel_tile_bytes(tile_kv, sizes.head_dim));
  layout.p.tiles = place.tiles(stages_p * panel_tile_bytes(rows_per_warpgroup, tile_kv));
  layout.row_factors = place.words(stages_p * rows_per_warpgroup * word_bytes);
  layout.p_flags = place.words(stages_p * warps * word_bytes);
  layout.key_tile_infos = place.numbers(stages_infos * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  place.barriers(layout.q, 1);
  place.barriers(layout.k, sizes.stages * key_parts(sizes.head_dim, sizes.head_dim_v));
  place.barriers(layout.p, stages_p);
  place.barriers(layout.infos, stages_infos);
  place.barriers(layout.splits, stages_splits);
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_mla_wgmma
