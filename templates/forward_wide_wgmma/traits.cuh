// Traits that follow from the Config: tiles, panels, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_wide_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_wide_wgmma {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  using Key = Element;
  using Weight = Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::tile_q == rows_per_warpgroup, "a block has the queries of one warpgroup");
  static_assert(Config::tile_kv == tile_kv, "host and device agree on the tile of keys");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  // Elements have 16 bits, and stages are panels: the producers serve other families, too, and ask.
  static constexpr bool multiplies_fp8 = false, transposes_v = false, upcasts = false;
  static constexpr bool has_converters = false;
  static constexpr bool loads_panels = true, copies_by_lanes = false, values_in_keys = false;

  /// Whether sequences may differ in length, which is then read on the device.
  static constexpr bool has_lengths = Config::sequences_q != SequenceKind::dense ||
                                      Config::sequences_kv != SequenceKind::dense || Config::sinks;
  using Work = typename ChosenType<has_lengths, SequenceTile, WorkTile>::type;
  /// The part of the work that the score warpgroup keeps in registers.
  using EpilogueWork = WorkTile;

  /// Boxes in which a tile of keys is copied: each lies in one page.
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = tile_kv / box_rows;
  static_assert(boxes <= warp_size, "each box of a tile has a lane that finds its page");

  static constexpr int warps = warpgroup_size / warp_size;
  static constexpr int consumers = 1;  ///< of queries: the score warpgroup
  static constexpr int consumer_warps = warps;
  static constexpr int output_warps = output_warpgroups * warps;
  static constexpr int threads = (1 + consumers + output_warpgroups) * warpgroup_size;

  /// Scores of one warp.
  using Scores = Accumulator<MmaLayout, 16, tile_kv>;
  static constexpr int key_steps = tile_kv / mma_k;

  using QTile = PanelTile<Element, rows_per_warpgroup, Config::head_dim>;
  using KTile = PanelTile<Element, tile_kv, Config::head_dim>;
  /// A stage of keys: what one group of products sums up.
  using KPanel = PanelTile<Element, tile_kv, KTile::columns, KTile::columns>;
  static constexpr int k_panels = KTile::panels, first_key_column = 0;
  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim) / mma_k;
  static constexpr int panel_steps = KTile::columns / mma_k;
  /// Steps of the last panel, which may be short.
  static constexpr int last_panel_steps = head_dim_steps - (k_panels - 1) * panel_steps;

  /// A stage of values: columns of O that one product makes.
  using VPart =
      PanelTile<Element, tile_kv, part_columns(Config::head_dim_v), panel_columns(Config::head_dim_v)>;
  static constexpr int own_parts = jit::own_parts(Config::head_dim_v);  ///< of a warpgroup
  static constexpr int v_parts = own_parts * output_warpgroups;
  static_assert(forward_wide_wgmma::stages_v >= v_parts,
                "a warpgroup releases a part behind the product with the next");
  static JIT_DEVICE constexpr int first_column(int part) {
    return first_part_column(Config::head_dim_v, part);
  }
  using OutputPart = Accumulator<MmaLayout, 16, part_columns(Config::head_dim_v)>;
  using OTile = PanelTile<OutputElement<Config>, rows_per_warpgroup, Config::head_dim_v>;
  using PTile = PanelTile<Element, rows_per_warpgroup, tile_kv>;

  static constexpr int stages_k = Config::stages_k, stages_v = forward_wide_wgmma::stages_v;
  static constexpr int stages_p = forward_wide_wgmma::stages_p;
  static constexpr int stages_infos = forward_wide_wgmma::stages_infos;

  /// Whether the key producer leaves a word of each key of a partial tile.
  static constexpr bool has_key_words = key_words<typename Config::Mask> == 1;
  static constexpr int mask_bit_words = jit::mask_bit_words<TileMask<Config>, Config::tile_q, tile_kv>;
  static constexpr bool has_mask_bits = mask_bit_words > 0;
  static constexpr bool has_key_scales = false;
  static constexpr bool keys_by_lanes = has_key_words;
  /// Nobody leaves out parts of a tile: rows of one warpgroup see nearly the same keys.
  static constexpr bool has_lower_tiles = false;
  static constexpr int lower_keys = tile_kv, max_skipped_tiles = 0;

  static constexpr SmemSizes sizes = {.head_dim = Config::head_dim,
                                      .head_dim_v = Config::head_dim_v,
                                      .stages_k = Config::stages_k,
                                      .key_words = has_key_words,
                                      .has_lengths = has_lengths,
                                      .mask_bit_words = mask_bit_words};
  static constexpr SmemLayout layout = smem_layout(sizes);
  static constexpr bool has_key_word_ranges = forward_wide_wgmma::has_key_word_ranges(sizes);

  // One tile of queries, whose place is free behind the last product with it; O does not lie there.
  static constexpr int q_stage_bytes = QTile::bytes, q_bytes = QTile::bytes, o_bytes = 0, stages_o = 0;
  static constexpr bool o_aliases_q = false, query_producer_stores = false;

  /// Values have a producer of their own: one warp would take too long to start the copies of all panels.
  static constexpr bool has_value_producer = true;
  /// Warps that read the pipeline of work: one of the producers of keys and queries, the other of which tells, that of
  /// values, and all that compute.
  static constexpr int work_readers = 2 + consumer_warps + output_warps;
  /// Warps that read what the key producer leaves.
  static constexpr int key_readers = 1 + consumer_warps;

  // Named barriers; 0 is __syncthreads'.
  static constexpr int queries_barrier = 1;
};

}  // namespace jit::forward_wide_wgmma
