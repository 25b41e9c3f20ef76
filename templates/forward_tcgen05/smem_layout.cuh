// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_tcgen05 {

/// Queries of a work tile, and keys per step. The rows of a query tile are the lanes of tensor memory.
inline constexpr int tile_q = 256, query_rows = 128, tile_kv = 128;
/// Places for scores in a block's tensor memory.
inline constexpr int score_places = 2;

/// Who computes a work tile: a block with two query tiles, each with a place for scores, or a pair of blocks with one
/// each, of two places, where O of two does not fit tensor memory, or Q not shared memory. Each block of a pair has half
/// of the keys of a tile, and half of the columns of its values.
struct Blocks {
  int count;
  JIT_HOST_DEVICE constexpr int query_tiles() const { return tile_q / query_rows / count; }
  JIT_HOST_DEVICE constexpr int places_of_tile() const { return score_places / query_tiles(); }
  JIT_HOST_DEVICE constexpr int keys() const { return tile_kv / count; }
  /// Threads: warpgroups of softmax, one of correction, and one of which a warp issues products and three load.
  JIT_HOST_DEVICE constexpr int threads() const { return (query_tiles() + 2) * 128; }
};
inline constexpr int most_head_dim_of_block = 192, most_head_dim_v_of_block = 128;
JIT_HOST_DEVICE constexpr Blocks blocks_of(int head_dim, int head_dim_v) {
  return {head_dim > most_head_dim_of_block || head_dim_v > most_head_dim_v_of_block ? 2 : 1};
}

/// Columns of O that are computed, and those of V that a block holds, of panels as wide as those of the tensor's map.
JIT_HOST_DEVICE constexpr int output_columns(int head_dim_v, int bytes, Blocks blocks) {
  return padded_head_dim(head_dim_v, blocks.count == 2 && bytes == 1 ? 32 : 16);
}
JIT_HOST_DEVICE constexpr int value_columns(int head_dim_v, int bytes, Blocks blocks) {
  return blocks.count == 1 ? head_dim_v : output_columns(head_dim_v, bytes, blocks) / 2;
}
JIT_HOST_DEVICE constexpr int value_bytes(int head_dim_v, int bytes, Blocks blocks) {
  const int width = panel_columns(head_dim_v, bytes);
  return tile_kv * ((value_columns(head_dim_v, bytes, blocks) + width - 1) / width) * width * bytes;
}
/// Tiles of keys that are told of ahead, and those whose row factors may wait for the correction warps.
inline constexpr int stages_infos = 4, stages_factors = 2;
inline constexpr int warps_per_tile = query_rows / 32;
/// P is stored in quarters of the keys, of which so many are told of early.
inline constexpr int p_quarters = 4, early_quarters = 3;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q of each query tile | K stage 0 | … | V stage 0 | … | flags | row factors | infos | work | barriers | address |
struct SmemLayout {
  PipelinePlace q;        ///< a stage for each query tile
  PipelinePlace k;        ///< tiles of keys
  PipelinePlace v;        ///< tiles of values
  PipelinePlace infos;    ///< of tiles of keys
  PipelinePlace scores;   ///< in tensor memory: full when the products are done
  PipelinePlace p;        ///< in tensor memory: full when P of the first keys is stored and O is rescaled
  PipelinePlace p_end;    ///< in tensor memory: full when P of the last keys is stored
  PipelinePlace o_sums;   ///< in tensor memory: full when the last products with values are done
  PipelinePlace factors;  ///< of rows, for each query tile
  PipelinePlace o;        ///< none: O goes from registers to memory
  PipelinePlace work;     ///< WorkTile, or SequenceTile, for each stage
  int factor_flags;       ///< int of each warp's rows, for each stage of each query tile
  int row_factors;        ///< float of each row, for each stage of each query tile
  int key_words;          ///< none
  int stored_words;       ///< none
  int key_word_ranges;    ///< none
  int mask_bits;          ///< none
  int key_scales;  ///< float for each key of each tile that is told of, if each, or each block, has a scale
  int key_tile_infos;  ///< KeyTileInfo for each stage
  int stored_infos;    ///< the same
  int work_wanted;     ///< one barrier, where sequences may differ in length
  int tmem_address;    ///< of the columns that were allocated
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int stages;        ///< of K, and of V
  bool has_lengths;  ///< whether sequences may differ in length
  int element_bytes = jit::element_bytes;
  bool key_scales = false;  ///< whether each key, or block of keys, has a scale of its own
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4;
  const Blocks blocks = blocks_of(sizes.head_dim, sizes.head_dim_v);
  const int query_tiles = blocks.query_tiles();
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles =
      place.tiles(query_tiles * panel_tile_bytes(query_rows, sizes.head_dim, sizes.element_bytes));
  layout.k.tiles =
      place.tiles(sizes.stages * panel_tile_bytes(blocks.keys(), sizes.head_dim, sizes.element_bytes));
  layout.v.tiles = place.tiles(sizes.stages * value_bytes(sizes.head_dim_v, sizes.element_bytes, blocks));
  layout.factor_flags = place.words(query_tiles * stages_factors * warps_per_tile * word_bytes);
  layout.row_factors = place.words(query_tiles * stages_factors * query_rows * word_bytes);
  if (sizes.key_scales) layout.key_scales = place.numbers(stages_infos * tile_kv * word_bytes);
  layout.key_tile_infos = place.numbers(stages_infos * static_cast<int>(sizeof(KeyTileInfo)));
  layout.stored_infos = layout.key_tile_infos;
  layout.work.tiles = place.numbers(
      stages_work * static_cast<int>(sizes.has_lengths ? sizeof(SequenceTile) : sizeof(WorkTile)));
  place.barriers(layout.q, query_tiles);
  place.barriers(layout.k, sizes.stages);
  place.barriers(layout.v, sizes.stages);
  place.barriers(layout.infos, stages_infos);
  place.barriers(layout.scores, score_places);
  place.barriers(layout.p, score_places);
  place.barriers(layout.p_end, score_places);
  place.barriers(layout.o_sums, query_tiles);
  place.barriers(layout.factors, query_tiles * stages_factors);
  place.barriers(layout.work, stages_work);
  if (sizes.has_lengths) layout.work_wanted = place.barrier();
  layout.tmem_address = place.words(word_bytes);
  layout.total = place.total();
  return layout;
}

}  // namespace jit::forward_tcgen05
