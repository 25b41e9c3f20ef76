// Traits that follow from the Config: tiles, shared memory, who reads what.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_mma_tma/smem_layout.cuh"
#include "jit/options.h"
#include "problem/masks.cuh"
#include "ptx/fp8.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/value_columns.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mma_tma {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  using Key = Element;
  using Weight = Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::tile_q % rows_per_warpgroup == 0, "TMA brings queries in boxes of 64 rows");
  static_assert(Config::tile_kv % mma_k == 0, "tile_kv must be a multiple of mma's k");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  // FP8 values are multiplied as they lie, and nothing is upcast: the producers serve other families, too, and ask.
  static constexpr bool multiplies_fp8 = is_fp8<Element>, transposes_v = false, upcasts = false;
  static constexpr bool has_converters = false;
  static constexpr int converter_warps = 0;
  static constexpr bool loads_panels = false, copies_by_lanes = false, values_in_keys = false;

  /// Whether sequences may differ in length, which is then read on the device.
  static constexpr bool has_lengths = Config::sequences_q != SequenceKind::dense ||
                                      Config::sequences_kv != SequenceKind::dense || Config::sinks;
  using Work = typename ChosenType<has_lengths, SequenceTile, WorkTile>::type;
  /// The part of the work that a warp keeps in registers through its loop: it writes O itself, but lengths are read again.
  using EpilogueWork = WorkTile;

  /// Boxes in which a tile of keys is copied: each lies in one page.
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(boxes <= warp_size, "each box of a tile has a lane that finds its page");

  /// Groups of four warps with 16 queries each: a box of queries, which the collectives call a consumer.
  static constexpr int consumers = Config::tile_q / rows_per_warpgroup;
  static constexpr int consumer_warps = consumers * (warpgroup_size / warp_size);
  static constexpr int threads = (consumer_warps + producer_warps) * warp_size;

  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int key_steps = Config::tile_kv / mma_k;
  static constexpr bool q_in_registers =
      fits_registers(Config::head_dim * static_cast<int>(sizeof(Element)), Config::head_dim_v);

  // Accumulators of one warp. Columns come in another order where pairs of bytes are transposed.
  using Scores = Accumulator<MmaLayout, 16, Config::tile_kv>;
  using OutputLayout = typename ChosenType<multiplies_fp8, EvenOddLayout, MmaLayout>::type;
  using Output = Accumulator<OutputLayout, 16, padded_head_dim(Config::head_dim_v)>;
  using Columns = ValueColumns<Config, Output>;
  static constexpr bool may_lack_keys = true;  ///< of rows: whether some see no key is not worked out

  // As TMA writes tiles, and as ldmatrix reads them.
  using QTile = PanelTile<Element, rows_per_warpgroup, Config::head_dim>;
  using KTile = PanelTile<Element, Config::tile_kv, Config::head_dim>;
  using VTile = PanelTile<Element, Config::tile_kv, Config::head_dim_v>;
  using OTile = PanelTile<OutputElement<Config>, rows_per_warpgroup, Config::head_dim_v>;
  using StoredKTile = KTile;
  using StoredVTile = VTile;
  static constexpr int per_chunk = ElementTraits<Element>::per_chunk;
  using QRows = PanelRows<QTile, padded_head_dim(Config::head_dim, mma_k) / per_chunk>;
  using KRows = PanelRows<KTile, padded_head_dim(Config::head_dim, mma_k) / per_chunk>;
  using VRows = PanelRows<VTile, padded_head_dim(Config::head_dim_v) / per_chunk>;
  static constexpr int stages_k = Config::stages, stages_v = Config::stages;
  static constexpr int stages_stored_k = stages_k, stages_stored_v = stages_v;

  /// Whether the key producer leaves a word of each key of a partial tile, and what the elements of each are multiplied by.
  static constexpr bool has_key_words = key_words<typename Config::Mask> == 1;
  static constexpr bool has_key_scales = has_row_scales<Config>;
  static constexpr int mask_bit_words =
      jit::mask_bit_words<TileMask<Config>, Config::tile_q, Config::tile_kv>;
  static constexpr bool has_mask_bits = mask_bit_words > 0;
  static constexpr bool keys_by_lanes = has_key_words || has_key_scales;
  /// Whether groups look for tiles that only those behind them see: the last ones under a causal mask.
  static constexpr bool has_lower_tiles =
      consumers > 1 && has_row_range<TileMask<Config>> && !keeps_every_score<TileMask<Config>>;
  static constexpr int max_skipped_tiles =
      has_lower_tiles ? rounded_up_quotient(Config::tile_q, Config::tile_kv) : 0;
  static constexpr int lower_keys = Config::tile_kv;  ///< no warp multiplies a part of a tile

  static constexpr SmemSizes sizes = {.head_dim = Config::head_dim,
                                      .head_dim_v = Config::head_dim_v,
                                      .tile_q = Config::tile_q,
                                      .tile_kv = Config::tile_kv,
                                      .stages = Config::stages,
                                      .element_bytes = sizeof(Element),
                                      .key_words = has_key_words,
                                      .has_lengths = has_lengths,
                                      .key_scales = has_key_scales,
                                      .mask_bit_words = mask_bit_words};
  static constexpr SmemLayout layout = smem_layout(sizes);
  static constexpr bool has_key_word_ranges = forward_mma_tma::has_key_word_ranges(sizes);

  static constexpr int q_bytes = QTile::bytes, q_stage_bytes = consumers * q_bytes;
  static constexpr int o_bytes = 0, stages_o = 0;
  static constexpr bool o_aliases_q = false, query_producer_stores = false;

  /// Whether values have a producer of their own: a tile in many boxes takes long to start.
  static constexpr bool has_value_producer = boxes > 1;
  /// Warps that read the pipeline of work: one of the producers of keys and queries, the other of which tells, that of
  /// values if there is one, and all that compute.
  static constexpr int work_readers = 1 + has_value_producer + consumer_warps;
  /// Warps that read what the key producer leaves.
  static constexpr int key_readers = has_value_producer + consumer_warps;
  static constexpr bool shares_registers = consumer_warps + producer_warps > 8;

  static constexpr int queries_barrier = 1;  ///< named, but unused: queries are multiplied as they are
};

}  // namespace jit::forward_mma_tma
