// The layout of a block's shared memory in a wgmma kernel. Host and NVRTC compile this file; the generated program
// asserts that both compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_wgmma {

/// k-steps of P V that cover the lower half of a tile's keys.
JIT_HOST_DEVICE constexpr int lower_key_steps(int tile_kv, int mma_k = ElementTraits<bf16>::mma_k) {
  return (tile_kv / 2 + mma_k - 1) / mma_k;
}

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q stage 0 | … | K stage 0 | … | V stage 0 | … | stored K, V | O | words and their ranges | bits of scores | scales | tile infos | barriers |
///
/// O overwrites the Q that it was computed from, unless the config gives it a buffer of its own or consumers write it
/// to global memory. Stored K and V are K and V, unless converters produce these: V if it is transposed, both if they
/// are upcast. A stage of Q has one tile per consumer, and so has O. Barriers: two per stage, those of Q and O per
/// consumer, 8 bytes each.
struct SmemLayout {
  PipelinePlace q;
  PipelinePlace k;
  PipelinePlace v;
  PipelinePlace stored_k;  ///< as TMA writes it
  PipelinePlace stored_v;
  PipelinePlace o;
  PipelinePlace work;   ///< WorkTile, or SequenceTile, for each stage
  int key_words;        ///< int for each key of each stage, if the mask asks for words
  int stored_words;     ///< as key_words, for each stage of stored K
  int key_word_ranges;  ///< the table of ranges of key words: two ints each
  int mask_bits;        ///< mask bits of the tile's scores for each stage of K, if the mask has them
  int key_scales;       ///< float for each key, or block of keys, of each stage, if it has a scale
  int key_tile_infos;   ///< KeyTileInfo for each stage of K
  int stored_infos;     ///< KeyTileInfo for each stage of stored K
  int stored_k_scales;  ///< scales of each row of stored K that converters apply, for each stage
  int stored_v_scales;  ///< the same of stored V
  int value_infos;      ///< int for each stage of V that is transposed
  int work_wanted;      ///< one barrier, if sequences may differ in length
  int total;
};

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
  int stages_stored = 0;                   ///< stages of 8-bit K and V that are upcast; 0: none is
  int mask_bit_words = 0;                  ///< words of a tile's mask bits; 0: the mask has none
  bool sums_by_products = false;           ///< whether V has columns of ones after its own
  int numbers = 1;                         ///< of a stored byte
  int k_scale_bytes = 0;                   ///< of a row of stored K, that converters apply
  int v_scale_bytes = 0;                   ///< the same of V

  /// Whether converters transpose V. 8-bit products sum along the columns of both operands (PTX ISA,
  /// "wgmma.mma_async"), so a tile of V needs a row for each column.
  JIT_HOST_DEVICE constexpr bool transposes_v() const { return element_bytes == 1; }
  JIT_HOST_DEVICE constexpr bool upcasts() const { return stages_stored > 0; }
};

/// Rows of a tile of transposed V: one per column of the output's accumulators.
JIT_HOST_DEVICE constexpr int transposed_rows(int head_dim_v) { return padded_head_dim(head_dim_v); }

/// Columns of ones after those of V, from which P V computes the sums of P: as many as the smallest n of wgmma.
inline constexpr int sum_columns = 8;

/// Whether shared memory has the table of ranges of key words.
JIT_HOST_DEVICE constexpr bool has_key_word_ranges(const SmemSizes& sizes) {
  return sizes.key_words && !sizes.has_lengths;
}

JIT_HOST_DEVICE constexpr bool o_lies_over_q(const SmemSizes& sizes) {
  return !sizes.separate_o && !sizes.direct_o;
}

/// Stages of O: outputs that have been computed and not yet stored.
JIT_HOST_DEVICE constexpr int o_stages(const SmemSizes& sizes) {
  if (sizes.direct_o) return 0;
  return sizes.separate_o ? 1 : sizes.stages_q;
}

/// Bytes of a stage of Q; includes room for O if O overwrites Q.
JIT_HOST_DEVICE constexpr int q_stage_size(const SmemSizes& sizes) {
  const int q_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim, sizes.element_bytes);
  const int o_bytes = panel_tile_bytes(sizes.tile_q, sizes.head_dim_v, sizes.output_bytes);
  return o_lies_over_q(sizes) && o_bytes > q_bytes ? o_bytes : q_bytes;
}

/// Bytes of a tile of transposed V, including its rows of ones.
JIT_HOST_DEVICE constexpr int value_columns_bytes(const SmemSizes& sizes) {
  const int rows = transposed_rows(sizes.head_dim_v) + (sizes.sums_by_products ? sum_columns : 0);
  return panel_tile_bytes(rows, sizes.tile_kv, sizes.element_bytes);
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4;
  const int bytes = sizes.element_bytes, stages_stored = sizes.stages_stored;
  const int v_rows = sizes.stages_v * panel_tile_bytes(sizes.tile_kv, sizes.head_dim_v, bytes);
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(sizes.stages_q * q_stage_size(sizes));
  layout.k.tiles = place.tiles(sizes.stages_k * panel_tile_bytes(sizes.tile_kv, sizes.head_dim, bytes));
  layout.v.tiles = place.tiles(sizes.transposes_v() ? sizes.stages_v * value_columns_bytes(sizes) : v_rows);
  if (sizes.upcasts()) {
    const auto stored_bytes = [&](int columns) {
      return stages_stored * panel_tile_bytes(sizes.tile_kv, columns / sizes.numbers, 1);
    };
    layout.stored_k.tiles = place.tiles(stored_bytes(sizes.head_dim));
    layout.stored_v.tiles = place.tiles(stored_bytes(sizes.head_dim_v));
  } else if (sizes.transposes_v()) {
    layout.stored_v.tiles = place.tiles(v_rows);
  }
  layout.o.tiles = sizes.separate_o
                       ? place.tiles(panel_tile_bytes(sizes.tile_q, sizes.head_dim_v, sizes.output_bytes))
                       : layout.q.tiles;
  const auto place_words = [&](int stages) {
    return place.numbers(sizes.key_words ? stages * sizes.tile_kv * word_bytes : 0);
  };
  layout.key_words = place_words(sizes.stages_k);
  layout.stored_words = sizes.upcasts() ? place_words(stages_stored) : layout.key_words;
  layout.key_word_ranges =
      place.numbers(has_key_word_ranges(sizes) ? key_word_range_places * 2 * word_bytes : 0);
  if (sizes.mask_bit_words > 0) {
    constexpr int copy_alignment = 16;
    layout.mask_bits = place.place(sizes.stages_k * sizes.mask_bit_words * word_bytes, copy_alignment);
  }
  layout.key_scales = place.numbers(sizes.key_scales ? sizes.stages_k * sizes.tile_kv * word_bytes : 0);
  const auto place_infos = [&](int stages) {
    return place.numbers(stages * static_cast<int>(sizeof(KeyTileInfo)));
  };
  layout.key_tile_infos = place_infos(sizes.stages_k);
  layout.stored_infos = sizes.upcasts() ? place_infos(stages_stored) : layout.key_tile_infos;
  layout.stored_k_scales = place.numbers(stages_stored * sizes.tile_kv * sizes.k_scale_bytes);
  layout.stored_v_scales = place.numbers(stages_stored * sizes.tile_kv * sizes.v_scale_bytes);
  layout.value_infos = place.numbers(sizes.transposes_v() ? sizes.stages_v * word_bytes : 0);
  layout.work.tiles = place.numbers(
      stages_work * static_cast<int>(sizes.has_lengths ? sizeof(SequenceTile) : sizeof(WorkTile)));
  const int consumers = sizes.tile_q / rows_per_warpgroup;
  place.barriers(layout.q, consumers * sizes.stages_q);
  place.barriers(layout.k, sizes.stages_k);
  place.barriers(layout.v, sizes.stages_v);
  if (sizes.upcasts()) {
    place.barriers(layout.stored_k, stages_stored);
  } else {
    layout.stored_k = layout.k;
  }
  if (sizes.upcasts() || sizes.transposes_v()) {
    place.barriers(layout.stored_v, sizes.upcasts() ? stages_stored : sizes.stages_v);
  } else {
    layout.stored_v = layout.v;
  }
  place.barriers(layout.o, consumers * o_stages(sizes));
  place.barriers(layout.work, stages_work);
  if (sizes.has_lengths) layout.work_wanted = place.barrier();
  layout.total = place.total();
  return layout;
}

/// The sizes of a Config. `key_words`: whether the mask has words of keys; `mask_bit_words`: of a tile.
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
          .sums_by_products = Config::sums_by_products,
          .numbers = numbers_of<KvElement<Config>>,
          .k_scale_bytes = converted_scale_bytes<Config>(Config::head_dim),
          .v_scale_bytes = converted_scale_bytes<Config>(Config::head_dim_v)};
}

}  // namespace jit::forward_wgmma
