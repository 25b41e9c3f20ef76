// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mma_tma {

/// Warps beside those that compute: they load keys, queries and paged values, and clear padding rows.
inline constexpr int producer_warps = 4;
/// Registers of a thread that loads, and of one that computes, where a block has three warps on each quarter of a
/// multiprocessor; where it has two, each thread has as many as there can be.
inline constexpr int producer_registers = 56, shared_registers = 224;

/// Queries go on to registers, or stay where they are through all tiles of keys: more places for them would take those of
/// keys.
inline constexpr int stages_q = 1;

/// Whether Q fits a warp's registers beside its accumulators, by the bytes of its rows and the columns of O.
JIT_HOST_DEVICE constexpr bool fits_registers(int row_bytes, int head_dim_v) {
  return row_bytes <= 256 && head_dim_v <= 128;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | K stage 0 | … | V stage 0 | … | words and their ranges | bits of scores | scales | tile infos | barriers |
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;
  PipelinePlace v;
  PipelinePlace stored_k;  ///< K itself
  PipelinePlace stored_v;  ///< V itself
  PipelinePlace o;         ///< none: O goes from registers to memory
  PipelinePlace work;      ///< WorkTile, or SequenceTile, for each stage
  int key_words;           ///< int for each key of each stage, if the mask asks for words
  int stored_words;        ///< the same
  int key_word_ranges;     ///< the table of their ranges: two ints each
  int mask_bits;           ///< words of the tile's scores for each stage, if the mask knows them
  int key_scales;          ///< float for each key of each stage, if each, or each block, has a scale
  int key_tile_infos;      ///< KeyTileInfo for each stage of K
  int stored_infos;        ///< the same
  int work_wanted;         ///< one barrier, where sequences may differ in length
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int tile_q;
  int tile_kv;
  int stages;
  int element_bytes;  ///< of q, k and v
  bool key_words;
  bool has_lengths;    ///< whether sequences may differ in length
  bool key_scales;     ///< whether each key, or block of keys, has a scale of its own
  int mask_bit_words;  ///< of a tile; 0: its scores are not known
};

/// Whether there is a table of the ranges of key words.
JIT_HOST_DEVICE constexpr bool has_key_word_ranges(const SmemSizes& sizes) {
  return sizes.key_words && !sizes.has_lengths;
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4, copy_alignment = 16;
  const int bytes = sizes.element_bytes, stages = sizes.stages;
  const int key_bytes = stages * sizes.tile_kv * word_bytes;
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(stages_q * panel_tile_bytes(sizes.tile_q, sizes.head_dim, bytes));
  layout.k.tiles = place.tiles(stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, bytes));
  layout.v.tiles = place.tiles(stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, bytes));
  layout.key_words = layout.stored_words = place.numbers(sizes.key_words ? key_bytes : 0);
  layout.key_word_ranges =
      place.numbers(has_key_word_ranges(sizes) ? key_word_range_places * 2 * word_bytes : 0);
  if (sizes.mask_bit_words > 0)
    layout.mask_bits = place.place(stages * sizes.mask_bit_words * word_bytes, copy_alignment);
  layout.key_scales = place.numbers(sizes.key_scales ? key_bytes : 0);
  layout.key_tile_infos = layout.stored_infos = place.numbers(stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.work.tiles = place.numbers(
      stages_work * static_cast<int>(sizes.has_lengths ? sizeof(SequenceTile) : sizeof(WorkTile)));
  place.barriers(layout.q, sizes.tile_q / rows_per_warpgroup * stages_q);
  place.barriers(layout.k, stages);
  place.barriers(layout.v, stages);
  layout.stored_k = layout.k;
  layout.stored_v = layout.v;
  place.barriers(layout.work, stages_work);
  if (sizes.has_lengths) layout.work_wanted = place.barrier();
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_mma_tma
