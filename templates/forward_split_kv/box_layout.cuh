// The map of a block's shared memory where TMA copies tiles. Compiled by the host, which needs the size to launch,
// and by NVRTC; the generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_kv {

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | stage 0: Q, K, V | stage 1 … | tile infos of tiles | tile infos of splits | barriers |
///
/// Stages are those of SmemLayout, but that tiles lie in panels. Barriers: one for each stage, 8 bytes.
struct BoxLayout : StageLayout {
  PipelinePlace stages;
  PipelinePlace splits;  ///< SplitInfo, or SpanInfo, for each stage
  int key_tile_infos;    ///< KeyTileInfo for each stage
  int total;
};

struct BoxSizes {
  int head_dim;
  int head_dim_v;
  int row_warps;
  int key_warps;
  int tile_kv;
  int stages;
  bool has_spans;
};

JIT_HOST_DEVICE constexpr BoxLayout box_layout(const BoxSizes& sizes, const Storage& stored) {
  SmemAllocator stage, place;
  BoxLayout layout{};
  stage.tiles(sizes.row_warps * rows_per_warp * padded_head_dim(sizes.head_dim) * stored.query_bytes);
  layout.k = stage.tiles(panel_tile_bytes(sizes.tile_kv, sizes.head_dim, stored.element_bytes));
  layout.v = stage.tiles(panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, stored.element_bytes));
  const int end = stage.tiles(0), results = result_bytes(sizes.row_warps * sizes.key_warps, sizes.head_dim_v);
  layout.stage_bytes = ((end < results ? results : end) + 1023) / 1024 * 1024;
  layout.stages.tiles = place.tiles(sizes.stages * layout.stage_bytes);
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  place.barriers(layout.stages, sizes.stages);
  place.barriers(layout.splits, stages_splits);
  layout.total = place.total();
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr BoxLayout box_layout() {
  return box_layout({.head_dim = Config::head_dim,
                     .head_dim_v = Config::head_dim_v,
                     .row_warps = Config::row_warps,
                     .key_warps = Config::key_warps,
                     .tile_kv = Config::tile_kv,
                     .stages = Config::stages,
                     .has_spans = Config::split_keys != 0},
                    {static_cast<int>(sizeof(typename Config::Element)),
                     static_cast<int>(sizeof(KvElement<Config>)), has_row_scales<Config>});
}

}  // namespace jit::forward_split_kv
