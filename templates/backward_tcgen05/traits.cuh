// Traits that follow from the Config: tiles, columns of tensor memory, shared memory, parts of dQ.
#pragma once

#include "backward_tcgen05/smem_layout.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_tcgen05 {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static_assert(Config::tile_q == tile_q && Config::tile_kv == tile_kv, "host and device agree on tiles");
  static_assert(Config::head_dim <= 128 && Config::head_dim_v <= 128, "all sums fit tensor memory");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .head_dim_v = Config::head_dim_v,
                                                    .stages = Config::stages,
                                                    .deterministic = Config::deterministic});
  static constexpr int threads = 4 * warpgroup_size;

  using KTile = PanelTile<Element, tile_kv, Config::head_dim>;
  using VTile = PanelTile<Element, tile_kv, Config::head_dim_v>;
  using QTile = PanelTile<Element, tile_q, Config::head_dim>;
  using DoTile = PanelTile<Element, tile_q, Config::head_dim_v>;
  using DsTile = PanelTile<Element, tile_kv, tile_q>;  ///< keys are rows

  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static constexpr int columns = padded_head_dim(Config::head_dim),
                       columns_v = padded_head_dim(Config::head_dim_v);
  static constexpr int head_dim_steps = columns / mma_k, head_dim_v_steps = columns_v / mma_k;

  // Columns of tensor memory. P lies over S, dS over dP, and dQ over both of these.
  static constexpr int scores_column = 0, d_scores_column = 128, dv_column = 256, dk_column = 384;
  static constexpr int dq_column = d_scores_column;
  /// The column of the rounded score of query `query`, two in each, of a product at `column`: over the columns of the same
  /// queries that a warp has at once, which it has read, and no other warp reads.
  static constexpr int packed_column(int column, int query) {
    // mutate: PackedOverOthersQueries
    return column + query / part_queries * part_queries + query % part_queries / 2;
  }

  /// Queries of which a thread has scores, all of one key, and those that it has at once.
  static constexpr int own_queries = tile_q / 2, part_queries = 32;
  using Scores = Accumulator<RowLayout, warp_size, own_queries>;
  using Part = Accumulator<RowLayout, warp_size, part_queries>;

  // Producer, adder and turns (templates/backward) ask for these.
  static constexpr int own_keys = tile_kv;
  static constexpr bool has_early_values = false, releases_do = true, adds_by_tma = true;
  static constexpr int dq_adders = 1;
  static constexpr int dq_part_columns = backward_tcgen05::dq_part_columns(Config::head_dim);
  static constexpr int dq_parts = dq_columns(Config::head_dim) / dq_part_columns;
  static constexpr int dq_part_floats = tile_q * dq_part_columns;
  static constexpr int dq_tile_floats = dq_part_floats * dq_parts;
  /// LSE and delta lie in the order of queries.
  static JIT_DEVICE constexpr int statistic_place(int query) { return query; }
};

/// The lanes of the warp in tensor memory, of which the columns begin at `columns`.
JIT_DEVICE unsigned own_lanes(unsigned columns) {
  return columns + (uniform(threadIdx.x / warp_size) % 4 * warp_size << 16);  // mutate: GradientsOfOneWarp
}

}  // namespace jit::backward_tcgen05
