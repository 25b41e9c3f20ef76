// Traits that follow from the Config of a one-pass kernel: tiles, shared memory, fragment counts.
#pragma once

#include "backward/listed_queries.cuh"
#include "backward_wgmma/smem_layout.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/masks.cuh"
#include "problem/positions.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/whole_positions.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::backward_wgmma {

/// Whether each query sees one range of keys, by a mask that is not a combination.
template <class Mask>
inline constexpr bool is_single_range = has_row_range<Mask>;
template <class Op, class A, class B>
inline constexpr bool is_single_range<CombinedMask<Op, A, B>> = false;

/// When consumers ask the mask about a partial tile: for each part of its scores; masks with terms, which come from
/// memory, once, while the products run; masks of positions once before these, since look-ups would leave ptxas too few
/// registers and so serialize all products.
enum class AsksMask { per_part, beside_products, before_products };

/// Whether consumers of rows cap scores, which leaves no register for the bits of a mask above 64 columns.
template <class Config>
inline constexpr bool has_capped_rows = is_softcap<typename Config::Score> && !has_dropout<Config> &&
                                        Config::head_dim > 64 && !has_roles(Config::tile_kv, Config::pair);

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8 && Config::head_dim <= 256,
                "head_dim must be a multiple of 8 from 8 to 256");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8 && Config::head_dim_v <= 256,
                "head_dim_v must be a multiple of 8 from 8 to 256");
  static constexpr bool has_roles = backward_wgmma::has_roles(Config::tile_kv, Config::pair);
  static_assert(has_roles || (Config::head_dim <= largest_of_rows && Config::head_dim_v <= largest_of_rows),
                "sums of rows fill the registers of a warpgroup");
  /// Whether a separate consumer computes dQ.
  static constexpr bool has_query_consumer =
      backward_wgmma::has_query_consumer(Config::head_dim, Config::head_dim_v, has_roles);
  static_assert(Config::tile_q == step_queries, "dQ has the rows of one wgmma");
  static_assert(has_roles || !Config::pair, "blocks whose consumers have roles go in pairs");
  static constexpr int own_keys = backward_wgmma::own_keys(Config::tile_kv, Config::pair);  ///< of the block
  static_assert(own_keys == keys_of_block(has_roles),
                "two consumers have a half of the keys each, or all have the same");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  static constexpr int consumers = consumer_count(has_query_consumer);
  static constexpr int threads = (consumers + 1) * warpgroup_size;
  static constexpr SmemLayout layout = smem_layout<Config>();
  /// Whether dO is released separately, not together with Q.
  static constexpr bool releases_do = has_roles;
  static constexpr int stages_ds = layout.ds.stages;
  static constexpr int stages_keys = layout.keys.stages;
  static constexpr int stages_do =
      backward_wgmma::stages_do(Config::head_dim, Config::head_dim_v, Config::stages, Config::pair);
  static constexpr int query_steps = Config::tile_q / mma_k;  ///< of dV and dK

  using KTile = PanelTile<Element, own_keys, Config::head_dim>;
  using VTile = PanelTile<Element, own_keys, Config::head_dim_v>;
  using QTile = PanelTile<Element, Config::tile_q, Config::head_dim>;
  using DoTile = PanelTile<Element, Config::tile_q, Config::head_dim_v>;
  using DsTile =
      PanelTile<Element, Config::tile_q, Config::tile_kv>;  ///< rows are queries; keys are those of a pair

  static constexpr int dq_parts = backward_wgmma::dq_parts(Config::head_dim, has_query_consumer);
  static constexpr int own_dq_parts = backward_wgmma::own_dq_parts(dq_parts, Config::pair);
  static_assert(!Config::pair || dq_parts > 1, "each block of a pair has a panel of dQ");
  /// Whether the next V is loaded while K of this tile is in use, if keys have one stage. Boxes that end with their
  /// sequence, and unequal parts of the blocks of a pair, leave the producer too few registers for this.
  static constexpr bool has_early_values =
      stages_keys == 1 && !has_entry_lengths<Config> && dq_parts % own_dq_parts == 0;
  /// Additions to a tile of queries per tile of keys.
  static constexpr int dq_adders = Config::pair ? 2 : backward_wgmma::dq_adders(has_query_consumer);
  /// Columns of a part of dQ: whole panels, or a part of the only panel.
  static constexpr int dq_columns = dq_part_columns(Config::head_dim, has_query_consumer);
  static constexpr int dq_part_floats = rows_per_warpgroup * dq_columns;
  static constexpr bool adds_by_tma = layout.dq_places > 0;
  static constexpr int adder_warps = adds_by_tma ? backward_wgmma::dq_adders(has_query_consumer) : 0;
  static constexpr int dq_tile_floats = dq_part_floats * dq_parts;

  // Scores of one warp of a consumer.
  using Scores = Accumulator<MmaLayout, 16, Config::tile_q>;
  using KeyGradient = Accumulator<MmaLayout, 16, padded_head_dim(Config::head_dim, mma_k)>;
  using ValueGradient = Accumulator<MmaLayout, 16, padded_head_dim(Config::head_dim_v, mma_k)>;
  using QueryGradient = Accumulator<MmaLayout, 16, dq_columns>;

  /// Whether a consumer loads LSE and delta ahead of their k-steps, if a warp has registers for them. With roles, a
  /// block without a peer waits for its additions to dQ anyway. For consumers of rows, score functors leave no
  /// registers, and dropout some if it is precomputed and another consumer computes dQ.
  static constexpr bool loads_ahead =
      Config::Score::is_identity &&
      (!has_dropout<Config> || (!has_roles && has_dropout_mask_ahead<Config> && has_query_consumer)) &&
      (!has_roles || Config::pair);
  static constexpr int statistics_ahead = !loads_ahead ? 0 : has_roles ? 2 : query_steps;

  static constexpr AsksMask asks_mask =
      has_listed_queries<Config> ? AsksMask::per_part
      : is_positioned<TileMask<Config>>
          ? (Config::Score::is_identity && !has_roles ? AsksMask::before_products : AsksMask::per_part)
      : key_words<TileMask<Config>> == 1 && !has_positions<Config> && !has_capped_rows<Config>
          ? AsksMask::beside_products
          : AsksMask::per_part;

  /// Whether a consumer of rows holds its keys in registers (steps/tile_fragments.cuh): where another one has dQ, and
  /// scores, masks, dropout, lists and turns of varlen sequences leave registers for them.
  static constexpr bool keys_in_registers = has_query_consumer && !has_roles && Config::Score::is_identity &&
                                            !has_dropout<Config> && is_single_range<typename Config::Mask> &&
                                            !has_listed_queries<Config> &&
                                            !(Config::deterministic && has_entry_lengths<Config>);
  static constexpr int register_steps =
      keys_in_registers ? padded_head_dim(Config::head_dim, mma_k) / mma_k : 1;

  static_assert(DsTile::row_bytes == 128 && DsTile::panels == Config::tile_kv / rows_per_warpgroup,
                "a consumer writes a panel of dS");

  /// The index of a query's LSE and −delta in its tile. A consumer's lane reads four values of 16 queries at once:
  /// those of its pair of columns in two blocks of 8.
  static JIT_DEVICE int statistic_place(int query) {
    const int in_step = query % 16;
    // mutate: QueriesOfAnotherOrder
    return query - in_step + in_step % 8 / 2 * 4 + in_step / 8 * 2 + in_step % 2;
  }

  // Named barriers; 0 is __syncthreads'.
  static constexpr int ds_barrier = 1;     ///< the consumer that sends dS to the peer
  static constexpr int turn_barriers = 2;  ///< one per consumer of rows, from this one on
  static constexpr int draw_barriers = 4;  ///< from here on, one per pair of warps that share draws
};

}  // namespace jit::backward_wgmma
