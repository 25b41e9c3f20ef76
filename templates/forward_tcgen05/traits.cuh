// Traits that follow from the Config: tiles, columns of tensor memory, shared memory, readers of pipelines.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_tcgen05/smem_layout.cuh"
#include "jit/options.h"
#include "pipeline/pipeline.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/fp8.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/block_pair.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_tcgen05 {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  /// FP8 P needs the third mantissa bit of e4m3, and has no use for e5m2's range.
  using Weight = typename ChosenType<is_fp8<Element>, fp8_e4m3, Element>::type;
  static_assert(!finishes_columns<Config>, "values have a scale for each head");
  static_assert(Config::tile_q == tile_q && Config::tile_kv == tile_kv, "host and device agree on tiles");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  // The producers serve other families, too, and ask: a stage is a whole tile, which one panel pipeline fills.
  static constexpr bool multiplies_fp8 = false, transposes_v = false, upcasts = false;
  static constexpr bool has_converters = false;
  static constexpr bool loads_panels = true, copies_by_lanes = false, values_in_keys = false;

  /// Whether sequences may differ in length, which is then read on the device.
  static constexpr bool has_lengths = Config::sequences_q != SequenceKind::dense ||
                                      Config::sequences_kv != SequenceKind::dense || Config::sinks;
  using Work = typename ChosenType<has_lengths, SequenceTile, WorkTile>::type;

  static constexpr Blocks blocks = blocks_of(Config::head_dim, Config::head_dim_v);
  static constexpr bool is_pair = blocks.count == 2;
  static_assert(is_pair == pairs_blocks<Config>, "host and device agree on who computes a work tile");
  static constexpr int query_tiles = blocks.query_tiles(), places_of_tile = blocks.places_of_tile();

  /// Boxes in which a tile of keys is copied: each lies in one page, and is one block's.
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(blocks.keys(), has_pages ? Config::page_size : 0);
  static constexpr int boxes = tile_kv / box_rows;
  static_assert(boxes <= warp_size, "each box of a tile has a lane that finds its page");

  static constexpr int consumers = query_tiles;
  static constexpr int threads = blocks.threads();

  /// A thread has a row of scores.
  using Scores = Accumulator<RowLayout, warp_size, tile_kv>;
  static constexpr int key_steps = tile_kv / mma_k,
                       head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int output_columns =
      forward_tcgen05::output_columns(Config::head_dim_v, sizeof(Element), blocks);

  using QTile = PanelTile<Element, query_rows, Config::head_dim>;
  using KTile = PanelTile<Element, blocks.keys(), Config::head_dim>;
  static constexpr int value_columns =
      forward_tcgen05::value_columns(Config::head_dim_v, sizeof(Element), blocks);
  using VTile =
      PanelTile<Element, tile_kv, value_columns, panel_columns(Config::head_dim_v, sizeof(Element))>;
  using KPanel = KTile;
  using VPart = VTile;
  using OTile = PanelTile<OutputElement<Config>, query_rows, Config::head_dim_v>;
  static constexpr int k_panels = 1, v_parts = 1, first_key_column = 0;
  static JIT_DEVICE int first_column(int /*part*/) {
    return rank_in_tile<Config>() * value_columns;  // mutate: ColumnsOfTheLeaderTwice
  }

  static constexpr int stages_k = Config::stages, stages_v = Config::stages;
  static constexpr int stages_infos = forward_tcgen05::stages_infos;

  // Beside a tile of keys lie scales, where each key, or each block of keys, has its own.
  static constexpr bool has_key_words = false, has_mask_bits = false, has_key_scales = has_row_scales<Config>;
  static constexpr bool keys_by_lanes = has_key_scales, has_key_word_ranges = false;
  static constexpr int mask_bit_words = 0;
  /// Nobody leaves out parts of a tile.
  static constexpr bool has_lower_tiles = false;
  static constexpr int lower_keys = tile_kv, max_skipped_tiles = 0;

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .head_dim_v = Config::head_dim_v,
                                                    .stages = Config::stages,
                                                    .has_lengths = has_lengths,
                                                    .element_bytes = sizeof(Element),
                                                    .key_scales = has_key_scales});

  static constexpr int q_stage_bytes = QTile::bytes, q_bytes = QTile::bytes, o_bytes = 0, stages_o = 0;
  static constexpr bool o_aliases_q = false, query_producer_stores = false;

  /// Whether values have a producer of their own: a tile in many boxes takes long to start.
  static constexpr bool has_value_producer = boxes > 1;
  /// Warps that read the pipeline of work: one of the producers of keys and queries, the other of which tells, that of
  /// values, and those of softmax, correction and products.
  static constexpr int work_readers =
      1 + (has_value_producer ? 1 : 0) + query_tiles * warps_per_tile + warps_per_tile + 1;
  /// Warps that read what the key producer tells: those of softmax and products, and the value producer.
  static constexpr int key_readers = query_tiles * warps_per_tile + 1 + (has_value_producer ? 1 : 0);

  /// Columns of tensor memory that P of so many keys takes.
  static constexpr int p_words(int keys) { return keys * static_cast<int>(sizeof(Weight)) / 4; }
  // Columns of tensor memory. P lies over the upper half of the scores that it was made of.
  static constexpr int scores_column(int place) { return place * tile_kv; }
  static constexpr int p_column(int place) { return scores_column(place) + tile_kv / 2; }
  static constexpr int output_column(int tile) { return score_places * tile_kv + tile * output_columns; }
  static constexpr int columns = tmem_columns;
  static_assert(output_column(query_tiles) <= columns, "each query tile has O in tensor memory");
};

/// Pipelines of a query tile whose stages lie in tensor memory: for a tile of keys each, in turn.
template <class Traits>
struct TileBarriers {
  using Scores = Pipeline<Traits::places_of_tile, 0>;
  Scores scores, p, p_end;
  Pipeline<1, 0> o;

  JIT_DEVICE TileBarriers(unsigned smem, int tile)
      : scores(of_tile<Scores>(smem, Traits::layout.scores, tile)),
        p(of_tile<Scores>(smem, Traits::layout.p, tile)),
        p_end(of_tile<Scores>(smem, Traits::layout.p_end, tile)),
        o(of_tile<Pipeline<1, 0>>(smem, Traits::layout.o_sums, tile)) {}

 private:
  template <class Pipeline>
  static JIT_DEVICE Pipeline of_tile(unsigned smem, const PipelinePlace& place, int tile) {
    return Pipeline(smem, place).moved(0, tile * 8);
  }
};

/// Something for each query tile of a block.
template <class Traits, class Part>
struct OfTiles {
  Part parts[Traits::query_tiles];
  JIT_DEVICE Part& operator[](int tile) { return parts[tile]; }
  JIT_DEVICE const Part& operator[](int tile) const { return parts[tile]; }
};
template <class Traits, class Part>
JIT_DEVICE OfTiles<Traits, Part> of_tiles(unsigned smem) {
  if constexpr (Traits::query_tiles == 1) {
    return {{{smem, 0}}};
  } else {
    return {{{smem, 0}, {smem, 1}}};
  }
}

/// Waits for the next phase of such a pipeline, and orders instructions of tensor memory behind it. By a whole warp.
template <class Traits, class Pipeline>
JIT_DEVICE void wait_for(Pipeline& pipeline) {
  if constexpr (Traits::is_pair) {
    pipeline.consumer_wait_cluster();
  } else {
    pipeline.consumer_wait();
  }
  pipeline.advance();
  tcgen05_fence_after();  // mutate: NoFenceBehindAWait
}
/// Tells the block that starts products that a stage is filled, as far as this warp does it. By a whole warp, behind a
/// tcgen05_fence_before.
template <class Traits, class Pipeline>
JIT_DEVICE void tell(Pipeline& pipeline) {
  if constexpr (Traits::is_pair) {
    pipeline.producer_commit_to(0);  // mutate: PToldToTheOwnBlock
  } else {
    pipeline.producer_commit();
  }
  pipeline.advance();
}

/// The first row of a block's query tile, within the work tile.
template <class Config>
JIT_DEVICE int first_row_of_tile(int tile) {
  return (rank_in_tile<Config>() + tile) * query_rows;
}

/// The address of the lanes of the warp in tensor memory, of which the columns begin at `columns`.
JIT_DEVICE unsigned own_lanes(unsigned columns) {
  return columns + (uniform(threadIdx.x / warp_size) % 4 * warp_size << 16);  // mutate: LanesOfOneWarp
}

}  // namespace jit::forward_tcgen05
