// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Warpgroups of a block that compute. Each has all rows, half of the columns of O, and the scores of every second
/// tile.
inline constexpr int consumers = 2;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | K stage 0 | … | P | maxima | sums | tile infos of keys | tile infos of splits | barriers |
///
/// P is that of one tile of keys, as the threads of a consumer have it: consumers hand it to each other. Barriers: one
/// for each stage, 8 bytes.
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;
  PipelinePlace stored_k;  ///< as TMA writes them: K itself, as are values
  PipelinePlace stored_v;
  PipelinePlace splits;  ///< SplitInfo, or SpanInfo, for each stage
  int p;
  int maxima;          ///< of each consumer a float for each row
  int sums;            ///< the same of each consumer, of two splits
  int key_tile_infos;  ///< KeyTileInfo for each stage of K
  int stored_infos;    ///< the same
  int total;
};

struct SmemSizes {
  int head_dim;
  int tile_kv;
  int stages;
  bool has_spans;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int row_floats = rows_per_warpgroup * static_cast<int>(sizeof(float));
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim));
  layout.k.tiles = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim));
  layout.p = place.tiles(rows_per_warpgroup * sizes.tile_kv * element_bytes);
  layout.maxima = place.numbers(consumers * row_floats);
  layout.sums = place.numbers(2 * consumers * row_floats);
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  place.barriers(layout.q, 1);
  place.barriers(layout.k, sizes.stages);
  place.barriers(layout.splits, stages_splits);
  layout.stored_k = layout.stored_v = layout.k;
  layout.stored_infos = layout.key_tile_infos;
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_mla_wgmma
