// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_wgmma {

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q stage 0 | … | K stage 0 | … | V stage 0 | … | stored K, V | tile infos of keys | tile infos of splits | barriers |
///
/// A stage of Q has one tile per consumer. Stored K and V are 8-bit keys and values, which converters upcast to K and
/// V; without converters they are K and V themselves. Barriers: two per stage, 8 bytes each.
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;
  PipelinePlace v;
  PipelinePlace stored_k;
  PipelinePlace stored_v;
  PipelinePlace splits;  ///< SplitInfo, SpanInfo or ListInfo for each stage
  int key_tile_infos;    ///< KeyTileInfo for each stage of K
  int stored_infos;      ///< KeyTileInfo for each stage of stored K
  int stored_k_scales;   ///< scales of each row of stored K that converters apply, for each stage
  int stored_v_scales;   ///< the same of stored V
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int tile_rows;
  int tile_kv;
  int stages_q;
  int stages;         ///< of K, and of V
  int stages_stored;  ///< stages of 8-bit K, and of V; 0: there are no converters
  bool has_spans;
  bool has_lists;
  int numbers = 1;        ///< of a stored byte
  int k_scale_bytes = 0;  ///< of a row of stored K, that converters apply
  int v_scale_bytes = 0;  ///< the same of V
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(sizes.stages_q * panel_tile_bytes(sizes.tile_rows, sizes.head_dim));
  layout.k.tiles = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim));
  layout.v.tiles = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v));
  if (sizes.stages_stored > 0) {
    layout.stored_k.tiles =
        place.tiles(sizes.stages_stored * panel_tile_bytes(sizes.tile_kv, sizes.head_dim / sizes.numbers, 1));
    layout.stored_v.tiles = place.tiles(sizes.stages_stored *
                                        panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v / sizes.numbers, 1));
  }
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.stored_infos = place.numbers(sizes.stages_stored * static_cast<int>(sizeof(KeyTileInfo)));
  layout.stored_k_scales = place.numbers(sizes.stages_stored * sizes.tile_kv * sizes.k_scale_bytes);
  layout.stored_v_scales = place.numbers(sizes.stages_stored * sizes.tile_kv * sizes.v_scale_bytes);
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans, sizes.has_lists));
  place.barriers(layout.q, sizes.stages_q);
  place.barriers(layout.k, sizes.stages);
  place.barriers(layout.v, sizes.stages);
  if (sizes.stages_stored > 0) {
    place.barriers(layout.stored_k, sizes.stages_stored);
    place.barriers(layout.stored_v, sizes.stages_stored);
  } else {
    layout.stored_k = layout.k;
    layout.stored_v = layout.v;
    layout.stored_infos = layout.key_tile_infos;
  }
  place.barriers(layout.splits, stages_splits);
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_split_wgmma
