// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "mainloop/output_columns.cuh"
#include "pipeline/smem_allocator.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_wide_wgmma {

/// Keys per step: more would leave no room for panels, and fewer make narrow products slow.
inline constexpr int tile_kv = 64;
/// Tiles of keys whose P may wait to be multiplied, and those that are told of ahead.
inline constexpr int stages_p = 2, stages_infos = 4;
/// Parts of values that there is room for: two of each output warpgroup, which has places of its own.
inline constexpr int stages_v = 2 * output_warpgroups;

JIT_HOST_DEVICE constexpr int k_panel_bytes(int head_dim) {
  return tile_kv * panel_columns(head_dim) * element_bytes;
}
JIT_HOST_DEVICE constexpr int v_part_bytes(int head_dim_v) {
  return tile_kv * part_columns(head_dim_v) * element_bytes;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | panel of K, stage 0 | … | part of V, stage 0 | … | P stage 0 | … | row factors | words | bits of scores | infos | barriers |
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;      ///< panels of keys
  PipelinePlace v;      ///< parts of values
  PipelinePlace p;      ///< P of tiles of keys
  PipelinePlace infos;  ///< of tiles of keys
  PipelinePlace o;      ///< none: O goes from registers to memory
  PipelinePlace work;   ///< WorkTile, or SequenceTile, for each stage
  int p_flags;          ///< int of each warp's rows, for each stage of P
  int row_factors;      ///< float of each row, for each stage of P
  int key_words;        ///< int for each key of each stage of infos, if the mask asks for words
  int stored_words;     ///< the same
  int key_word_ranges;  ///< the table of their ranges: two ints each
  int mask_bits;        ///< words of the tile's scores for each stage, if the mask knows them
  int key_scales;       ///< none
  int key_tile_infos;   ///< KeyTileInfo for each stage
  int stored_infos;     ///< the same
  int work_wanted;      ///< one barrier, where sequences may differ in length
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int stages_k;
  bool key_words;
  bool has_lengths;    ///< whether sequences may differ in length
  int mask_bit_words;  ///< of a tile; 0: its scores are not known
};

/// Whether there is a table of the ranges of key words.
JIT_HOST_DEVICE constexpr bool has_key_word_ranges(const SmemSizes& sizes) {
  return sizes.key_words && !sizes.has_lengths;
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4, copy_alignment = 16, warps = 4;
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim));
  layout.k.tiles = place.tiles(sizes.stages_k * k_panel_bytes(sizes.head_dim));
  layout.v.tiles = place.tiles(stages_v * v_part_bytes(sizes.head_dim_v));
  layout.p.tiles = place.tiles(stages_p * panel_tile_bytes(rows_per_warpgroup, tile_kv));
  layout.p_flags = place.words(stages_p * warps * word_bytes);
  layout.row_factors = place.words(stages_p * rows_per_warpgroup * word_bytes);
  layout.key_words = place.numbers(sizes.key_words ? stages_infos * tile_kv * word_bytes : 0);
  layout.stored_words = layout.key_words;
  layout.key_word_ranges =
      place.numbers(has_key_word_ranges(sizes) ? key_word_range_places * 2 * word_bytes : 0);
  if (sizes.mask_bit_words > 0)
    layout.mask_bits = place.place(stages_infos * sizes.mask_bit_words * word_bytes, copy_alignment);
  layout.key_tile_infos = place.numbers(stages_infos * static_cast<int>(sizeof(KeyTileInfo)));
  layout.stored_infos = layout.key_tile_infos;
  layout.work.tiles = place.numbers(
      stages_work * static_cast<int>(sizes.has_lengths ? sizeof(SequenceTile) : sizeof(WorkTile)));
  place.barriers(layout.q, 1);
  place.barriers(layout.k, sizes.stages_k);
  place.barriers(layout.v, stages_v);
  place.barriers(layout.p, stages_p);
  place.barriers(layout.infos, stages_infos);
  place.barriers(layout.work, stages_work);
  if (sizes.has_lengths) layout.work_wanted = place.barrier();
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_wide_wgmma
