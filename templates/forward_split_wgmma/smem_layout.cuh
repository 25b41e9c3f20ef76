// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "split_keys/key_tile_info.cuh"
#include "split_keys/smem_places.cuh"
#include "split_keys/span_info.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_wgmma {

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q stage 0 | … | K stage 0 | … | V stage 0 | … | stored K, V | tile infos of keys | tile infos of splits | barriers |
///
/// A stage of Q has the rows of each consumer as a tile of its own. Keys and values of 8 bits are stored beside those of 16
/// that are made of them. Barriers: one for each stage, 8 bytes.
struct SmemLayout {
  int q;
  int k;
  int v;
  int stored_k;
  int stored_v;
  int key_tile_infos;  ///< KeyTileInfo for each stage of K
  int stored_infos;    ///< the same of stored K
  int splits;          ///< tile info for each stage of splits
  int q_full;
  int q_empty;
  int k_full;
  int k_empty;
  int v_full;
  int v_empty;
  int stored_k_full;
  int stored_k_empty;
  int stored_v_full;
  int stored_v_empty;
  int split_full;
  int split_empty;
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int tile_rows;
  int tile_kv;
  int stages_q;
  int stages;         ///< of K, and of V
  int stages_stored;  ///< the same of 8 bits; 0: there are none
  bool has_spans;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  SmemPlaces place;
  SmemLayout layout{};
  layout.q = place.tiles(sizes.stages_q * panel_tile_bytes(sizes.tile_rows, sizes.head_dim));
  layout.k = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim));
  layout.v = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v));
  if (sizes.stages_stored > 0) {
    layout.stored_k = place.tiles(sizes.stages_stored * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, 1));
    layout.stored_v = place.tiles(sizes.stages_stored * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, 1));
  }
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.stored_infos = place.numbers(sizes.stages_stored * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  layout.q_full = place.barriers(sizes.stages_q);
  layout.q_empty = place.barriers(sizes.stages_q);
  layout.k_full = place.barriers(sizes.stages);
  layout.k_empty = place.barriers(sizes.stages);
  layout.v_full = place.barriers(sizes.stages);
  layout.v_empty = place.barriers(sizes.stages);
  layout.stored_k_full = place.barriers(sizes.stages_stored);
  layout.stored_k_empty = place.barriers(sizes.stages_stored);
  layout.stored_v_full = place.barriers(sizes.stages_stored);
  layout.stored_v_empty = place.barriers(sizes.stages_stored);
  layout.split_full = place.barriers(stages_splits);
  layout.split_empty = place.barriers(stages_splits);
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_split_wgmma
