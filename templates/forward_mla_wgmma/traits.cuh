// Traits that follow from the Config: tiles, parts, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "problem/latent_rows.cuh"
#include "ptx/cluster.cuh"
#include "split_keys/block_traits.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Consumers are the warpgroups that have halves of O.
template <class Config>
struct KernelTraits : BlockTraits<Config, output_warpgroups, rows_per_warpgroup> {
  using Base = BlockTraits<Config, output_warpgroups, rows_per_warpgroup>;
  using typename Base::Element;
  static_assert(Config::tile_kv == tile_kv, "host and device agree on the tile of keys");
  static constexpr int warps = warpgroup_size / warp_size;
  static constexpr bool uses_tma = Config::copies == Copies::tma;
  /// Whether consumers compute scores, of every other tile each. Else a score warpgroup does.
  static constexpr bool seesaws = !uses_tma && !converts_latents<Config>;
  static constexpr int score_warps = seesaws ? Base::consumer_warps : warps;
  /// Producers, the score warpgroup where there is one, and consumers.
  static constexpr int threads = Base::consumer_threads + (seesaws ? 1 : 2) * warpgroup_size;
  static constexpr int first_consumer_thread = threads - Base::consumer_threads;
  static constexpr int stages_q = 1;
  static constexpr int stages_infos = forward_mla_wgmma::stages_infos(Config::copies != Copies::tma);

  /// The first columns of a tile of keys are the values, in whole panels.
  static constexpr bool values_in_keys = true, upcasts = false;
  static constexpr int own_columns = output_columns(Config::head_dim_v);  ///< of an output warpgroup
  static_assert(Config::head_dim_v % (output_warpgroups * value_panel) == 0,
                "a warpgroup's values are whole panels of the keys");
  using Output = Accumulator<MmaLayout, 16, own_columns>;
  using VPart = PanelTile<Element, tile_kv, part_columns(Config::head_dim_v), value_panel>;
  static constexpr int own_parts = jit::own_parts(Config::head_dim_v),
                       v_parts = own_parts * output_warpgroups;
  static constexpr int part_blocks = VPart::panels * value_panel / MmaLayout::block_columns;  ///< of Output
  static constexpr int part_steps = VPart::panels * value_panel / Base::mma_k;
  static JIT_DEVICE constexpr int first_column(int part) {
    return seesaws ? part * part_columns(Config::head_dim_v) : first_part_column(Config::head_dim_v, part);
  }

  /// The columns behind the values are keys alone.
  static constexpr bool has_keys_alone = Config::head_dim > Config::head_dim_v;
  static constexpr int k_panels = has_keys_alone, first_key_column = Config::head_dim_v;
  using KPanel = PanelTile<Element, tile_kv,
                           has_keys_alone ? Config::head_dim - Config::head_dim_v : value_panel, value_panel>;

  /// Columns of Q that a score warpgroup has in registers.
  static constexpr int first_query_column = seesaws ? 0 : held_columns(Config::head_dim_v);
  static constexpr int held_steps = first_query_column / Base::mma_k;
  using QTile = PanelTile<Element, rows_per_warpgroup, Config::head_dim - first_query_column, value_panel>;

  using PTile = PanelTile<Element, rows_per_warpgroup, tile_kv>;
  /// Pairs of a row that are read at once where spans are merged: more would spill.
  static constexpr int pairs_read = 4;

  /// Whether two blocks of a cluster have the halves of a query's heads, and each converts half of the rows of both.
  static constexpr bool is_pair = Config::pair;
  static constexpr int copied_rows = tile_kv / (is_pair ? 2 : 1);  ///< of a tile
  static JIT_DEVICE int first_copied_row() { return is_pair ? cluster_rank() * copied_rows : 0; }
  static_assert(!is_pair || converts_latents<Config>, "pairs of blocks send rows that they convert");
  /// A tile and a half are on their way at most, which does not cover the latency of memory beside products.
  static constexpr bool prefetches_keys = true;
  /// Whether P of a tile is handed over when S of the next one is there: so products with values are computed under softmax,
  /// and those with keys have the tensor cores for themselves.
  static constexpr bool hands_over_late = [] {
    if constexpr (!seesaws) return Config::score_registers > 128;
    return false;
  }();
  static_assert(!uses_tma || Base::boxes <= warp_size, "each box of a tile has a lane that copies it");

  /// Producer warps: one finds out which keys come, and loads them by TMA, or has others copy their rows. The others load
  /// queries, which the score warpgroup does itself beside rows.
  static constexpr int copy_warps = uses_tma ? 0 : row_copy_warps;
  static constexpr int query_warps = warps - 1 - copy_warps;
  static constexpr bool has_query_warps = query_warps > 0;
  static constexpr int query_threads = (has_query_warps ? query_warps : score_warps) * warp_size;
  /// Arrivals that fill a stage of keys: copies of rows arrive for each lane, when they have come.
  static constexpr int row_arrivals = uses_tma                   ? 1
                                      : converts_latents<Config> ? copy_warps
                                                                 : copy_warps * warp_size;
  /// Whether who reads them fences, not who copies them, or stores them in the other block.
  static constexpr bool fences_keys = row_arrivals > warps || (is_pair && !uses_tma);
  /// Parts that are waited for at once where who reads them fences.
  static constexpr int parts_at_once = 2;
  /// Parts before the keys alone. A score warpgroup releases copies of these first, behind S.
  static constexpr int parts_before_alone = uses_tma || seesaws ? v_parts : parts_at_once;
  /// Warps that are told of splits.
  static constexpr int split_readers = query_warps + Base::consumer_warps + (seesaws ? 0 : warps);

  /// Words that the key producers leave of each key of a list: its position, and its members where queries share it.
  static constexpr int list_words = [] {
    if constexpr (has_key_lists<Config>) return Config::Lists::queries > 1 ? 2 : 1;
    return 0;
  }();

  /// Bytes of a row of latents that is converted where it is copied, and of its scales.
  static constexpr int stored_row_bytes = [] {
    if constexpr (converts_latents<Config>)
      return Config::StoredLatent::row_bytes + Config::StoredLatent::page_end_bytes;
    return 0;
  }();

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .head_dim_v = Config::head_dim_v,
                                                    .stages = Config::stages,
                                                    .has_spans = Config::split_keys != 0,
                                                    .copies_rows = !uses_tma,
                                                    .list_words = list_words,
                                                    .stored_row_bytes = stored_row_bytes});

  static constexpr int stages_k = layout.k.stages, stages_v = layout.v.stages, stages_p = layout.p.stages;

  /// Named, of all that compute scores, and of each of the consumers that do.
  static constexpr int score_barrier = 2, seesaw_barrier = 3;
};

}  // namespace jit::forward_mla_wgmma
