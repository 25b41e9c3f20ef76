// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "split_keys/key_tile_info.cuh"
#include "split_keys/smem_places.cuh"
#include "split_keys/span_info.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Warpgroups of a block that compute. Each has all rows, half of the columns of O, and the scores of every second tile.
inline constexpr int consumers = 2;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | K stage 0 | … | P | maxima | sums | tile infos of keys | tile infos of splits | barriers |
///
/// P is that of one tile of keys, as the threads of a consumer have it: consumers hand it to each other. Barriers: one
/// for each stage, 8 bytes.
struct SmemLayout {
  int q;
  int k;
  int p;
  int maxima;          ///< of each consumer a float for each row
  int sums;            ///< the same of each consumer, of two splits
  int key_tile_infos;  ///< KeyTileInfo for each stage of K
  int splits;          ///< tile info for each stage of splits
  int q_full;
  int q_empty;
  int k_full;
  int k_empty;
  int split_full;
  int split_empty;
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
  SmemPlaces place;
  SmemLayout layout{};
  layout.q = place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim));
  layout.k = place.tiles(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim));
  layout.p = place.tiles(rows_per_warpgroup * sizes.tile_kv * element_bytes);
  layout.maxima = place.numbers(consumers * row_floats);
  layout.sums = place.numbers(2 * consumers * row_floats);
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  layout.q_full = place.barriers(1);
  layout.q_empty = place.barriers(1);
  layout.k_full = place.barriers(sizes.stages);
  layout.k_empty = place.barriers(sizes.stages);
  layout.split_full = place.barriers(stages_splits);
  layout.split_empty = place.barriers(stages_splits);
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_mla_wgmma
