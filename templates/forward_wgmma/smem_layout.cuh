// The map of a block's shared memory in a wgmma kernel. Compiled by the host, which needs the size to launch,
// and by NVRTC; the generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_wgmma {

/// Steps of P V that the lower half of a tile's keys takes.
JIT_HOST_DEVICE constexpr int lower_key_steps(int tile_kv, int mma_k = ElementTraits<bf16>::mma_k) {
  return (tile_kv / 2 + mma_k - 1) / mma_k;
}

/// What the key producer tells about a tile of keys.
struct KeyTileInfo {
  int k_begin;
  int flags;
};

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q stage 0 | … | K stage 0 | … | V stage 0 | … | stored K, V | O | words and their ranges | bits of scores | scales | tile infos | barriers |
///
/// O lies over the Q that it was computed from unless the config separates it or has consumers write it. Stored K and V are K and V unless a warpgroup makes these of them: V where
/// it is transposed, both where they are upcast. A stage of Q has the rows of each consumer as a tile of its
/// own, and so has O. Barriers: one for each stage, of Q and O for each consumer, 8 bytes.
struct SmemLayout {
  int q;
  int k;
  int v;
  int stored_k;  ///< as they come from memory
  int stored_v;
  int o;
  int key_words;        ///< int for each key of each stage, if the mask asks for words
  int stored_words;     ///< the same of stored K
  int key_word_ranges;  ///< the table of their ranges: two ints each
  int mask_bits;        ///< words of the tile's scores for each stage of K, if the mask knows them
  int key_scales;       ///< float for each key of each stage, if each, or each block, has a scale
  int key_tile_infos;   ///< KeyTileInfo for each stage of K
  int stored_infos;     ///< the same of stored K
  int value_infos;      ///< int for each stage of V that is transposed
  int work;             ///< WorkTile, or SequenceTile, for each stage of work
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
  int o_full;
  int o_empty;
  int work_full;
  int work_empty;
  int work_wanted;  ///< one barrier, where sequences may differ in length
  int total;
};

/// Work tiles that are kept: the key producer may be three ahead of the one that consumers compute.
inline constexpr int stages_work = 4;

/// Places in the table of ranges of key words.
inline constexpr int key_word_range_places = 512;

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int tile_q;
  int tile_kv;
  int stages_q;
  int stages_k;
  int stages_v;
  bool separate_o;
  bool direct_o;
  bool key_words;
  bool has_lengths;                        ///< whether sequences may differ in length
  int element_bytes = jit::element_bytes;  ///< of q, k and v as they are multiplied
  int output_bytes = jit::element_bytes;   ///< of o
  bool key_scales = false;                 ///< whether each key, or block of keys, has a scale of its own
  int stages_stored = 0;                   ///< of K and V of 8 bits that are upcast; 0: they are not
  int mask_bit_words = 0;                  ///< of a tile; 0: its scores are not known
  bool sums_by_products = false;           ///< whether V has columns of ones beside its own

  /// Whether V is transposed on its way. Products of elements of 8 bits sum along the columns of both tiles (PTX ISA,
  /// "wgmma.mma_async"): a tile of V has a row for each column.
  JIT_HOST_DEVICE constexpr bool transposes_v() const { return element_bytes == 1; }
  JIT_HOST_DEVICE constexpr bool upcasts() const { return stages_stored > 0; }
};

/// Rows of a tile of V that has one for each column: those of the output's accumulators.
JIT_HOST_DEVICE constexpr int transposed_rows(int head_dim_v) { return padded_head_dim(head_dim_v); }

/// Columns of ones beside those of V, of which P V makes the sums of P: the fewest that an instruction has.
inline constexpr int sum_columns = 8;

/// Whether there is a table of the ranges of key words.
JIT_HOST_DEVICE constexpr bool has_key_word_ranges(const SmemSizes& sizes) {
  return sizes.key_words && !sizes.has_lengths;
}

JIT_HOST_DEVICE constexpr bool o_lies_over_q(const SmemSizes& sizes) {
  return !sizes.separate_o && !sizes.direct_o;
}

/// Places for O that has been computed and not yet stored.
JIT_HOST_DEVICE constexpr int o_stages(const SmemSizes& sizes) {
  if (sizes.direct_o) return 0;
  return sizes.separate_o ? 1 : sizes.stages_q;
}

/// Distance between two stages of Q: room for O, where that lies over Q.
JIT_HOST_DEVICE constexpr int q_stage_size(const SmemSizes& sizes) {
  const int q_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim, sizes.element_bytes);
  const int o_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim_v, sizes.output_bytes);
  return o_lies_over_q(sizes) && o_bytes > q_bytes ? o_bytes : q_bytes;
}

/// Of a tile of V that has a row for each column.
JIT_HOST_DEVICE constexpr int value_columns_bytes(const SmemSizes& sizes) {
  const int rows = transposed_rows(sizes.head_dim_v) + (sizes.sums_by_products ? sum_columns : 0);
  return panel_tile_bytes(rows, sizes.tile_kv, sizes.element_bytes);
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int barrier_bytes = 8;
  const int stages_o = o_stages(sizes);
  int end = 0;
  const auto place = [&end](int bytes, int alignment = 8) {
    const int begin = (end + alignment - 1) / alignment * alignment;
    end = begin + bytes;
    return begin;
  };
  constexpr int tile_alignment = 1024;
  SmemLayout layout{};
  layout.q = place(sizes.stages_q * q_stage_size(sizes), tile_alignment);
  const int bytes = sizes.element_bytes;
  layout.k = place(sizes.stages_k * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, bytes), tile_alignment);
  const int v_rows = sizes.stages_v * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, bytes);
  layout.v =
      place(sizes.transposes_v() ? sizes.stages_v * value_columns_bytes(sizes) : v_rows, tile_alignment);
  const auto place_stored = [&](int head_dim) {
    return place(sizes.stages_stored * panel_tile_bytes(sizes.tile_kv, head_dim, 1), tile_alignment);
  };
  layout.stored_k = sizes.upcasts() ? place_stored(sizes.head_dim) : layout.k;
  layout.stored_v = sizes.upcasts()        ? place_stored(sizes.head_dim_v)
                    : sizes.transposes_v() ? place(v_rows, tile_alignment)
                                           : layout.v;
  layout.o = sizes.separate_o
                 ? place(panel_tile_bytes(sizes.tile_q, sizes.head_dim_v, sizes.output_bytes), tile_alignment)
                 : layout.q;
  constexpr int word_bytes = 4;
  const auto place_words = [&](int stages) {
    return place(sizes.key_words ? stages * sizes.tile_kv * word_bytes : 0);
  };
  layout.key_words = place_words(sizes.stages_k);
  layout.stored_words = sizes.upcasts() ? place_words(sizes.stages_stored) : layout.key_words;
  layout.key_word_ranges = place(has_key_word_ranges(sizes) ? key_word_range_places * 2 * word_bytes : 0);
  if (sizes.mask_bit_words > 0) {
    constexpr int copy_alignment = 16;
    layout.mask_bits = place(sizes.stages_k * sizes.mask_bit_words * word_bytes, copy_alignment);
  }
  layout.key_scales = place(sizes.key_scales ? sizes.stages_k * sizes.tile_kv * word_bytes : 0);
  const auto place_infos = [&](int stages) { return place(stages * static_cast<int>(sizeof(KeyTileInfo))); };
  layout.key_tile_infos = place_infos(sizes.stages_k);
  layout.stored_infos = sizes.upcasts() ? place_infos(sizes.stages_stored) : layout.key_tile_infos;
  layout.value_infos = place(sizes.transposes_v() ? sizes.stages_v * word_bytes : 0);
  layout.work =
      place(stages_work * static_cast<int>(sizes.has_lengths ? sizeof(SequenceTile) : sizeof(WorkTile)));
  const int consumers = sizes.tile_q / rows_per_warpgroup;
  layout.q_full = place(consumers * sizes.stages_q * barrier_bytes);
  layout.q_empty = place(consumers * sizes.stages_q * barrier_bytes);
  layout.k_full = place(sizes.stages_k * barrier_bytes);
  layout.k_empty = place(sizes.stages_k * barrier_bytes);
  layout.v_full = place(sizes.stages_v * barrier_bytes);
  layout.v_empty = place(sizes.stages_v * barrier_bytes);
  const auto place_barriers = [&](int stages, int without) {
    return stages > 0 ? place(stages * barrier_bytes) : without;
  };
  const int stages_stored_v = sizes.transposes_v() ? sizes.stages_v : sizes.stages_stored;
  layout.stored_k_full = place_barriers(sizes.stages_stored, layout.k_full);
  layout.stored_k_empty = place_barriers(sizes.stages_stored, layout.k_empty);
  layout.stored_v_full = place_barriers(stages_stored_v, layout.v_full);
  layout.stored_v_empty = place_barriers(stages_stored_v, layout.v_empty);
  layout.o_full = place(consumers * stages_o * barrier_bytes);
  layout.o_empty = place(consumers * stages_o * barrier_bytes);
  layout.work_full = place(stages_work * barrier_bytes);
  layout.work_empty = place(stages_work * barrier_bytes);
  layout.work_wanted = place(sizes.has_lengths ? barrier_bytes : 0);
  layout.total = end;
  return layout;
}

/// `key_words`: whether the mask has words of keys; `mask_bit_words`: of a tile whose scores it knows.
template <class Config>
JIT_HOST_DEVICE constexpr SmemSizes smem_sizes(bool key_words, int mask_bit_words, bool has_lengths) {
  return {.head_dim = Config::head_dim,
          .head_dim_v = Config::head_dim_v,
          .tile_q = Config::tile_q,
          .tile_kv = Config::tile_kv,
          .stages_q = Config::stages_q,
          .stages_k = Config::stages_k,
          .stages_v = Config::stages_v,
          .separate_o = Config::output == OutputPlace::separate,
          .direct_o = Config::output == OutputPlace::direct,
          .key_words = key_words,
          .has_lengths = has_lengths,
          .element_bytes = static_cast<int>(sizeof(typename Config::Element)),
          .output_bytes = static_cast<int>(sizeof(OutputElement<Config>)),
          .key_scales = has_row_scales<Config>,
          .stages_stored = Config::stages_stored,
          .mask_bit_words = mask_bit_words,
          .sums_by_products = Config::sums_by_products};
}

}  // namespace jit::forward_wgmma
