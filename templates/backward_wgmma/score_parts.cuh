// Scores of a tile in a warp's registers, with keys as rows, in parts of 16 queries: k-steps of dV and dK.
#pragma once

#include "backward/key_tile.cuh"
#include "backward_wgmma/listed_scores.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/ldmatrix.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"
#include "steps/score_gradients.cuh"
#include "steps/whole_positions.cuh"

namespace jit::backward_wgmma {

/// LSE or delta of the lane's queries in k-step `i` of a tile, whose values lie at shared address `tile` in the order
/// of `statistic_place`.
class StepNumbers {
 public:
  StepNumbers() = default;
  JIT_DEVICE StepNumbers(unsigned tile, int i) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(pairs_[0].numbers[0]), "=f"(pairs_[0].numbers[1]), "=f"(pairs_[1].numbers[0]),
                   "=f"(pairs_[1].numbers[1])
                 : "r"(tile + i * 64 + threadIdx.x % 4 * 16)
                 : "memory");
  }
  /// As ColumnNumbers.
  JIT_DEVICE const ColumnNumbers::Pair& at(int n) const { return pairs_[n]; }

 private:
  ColumnNumbers::Pair pairs_[2];
};

/// LSE or delta of a tile's queries. The values of the first `ahead` k-steps are loaded before the wait for the product
/// that they belong to; after it, loads would compete for shared memory with the next products. Later values are loaded
/// `ahead` k-steps ahead.
template <class Config>
class TileNumbers {
  static constexpr int ahead = KernelTraits<Config>::statistics_ahead;

 public:
  JIT_DEVICE void load(unsigned tile) {
    tile_ = tile;
#pragma unroll
    for (int i = 0; i < ahead; ++i) load_step(i);
  }
  JIT_DEVICE StepNumbers step(int i) const {
    if constexpr (ahead > 0) return steps_[i % ahead];
    return {tile_, i};
  }
  /// Loads the values of a later k-step, once k-step `i` has used its own.
  JIT_DEVICE void load_behind(int i) {
    if constexpr (ahead > 0) {
      if (i + ahead < KernelTraits<Config>::query_steps) load_step(i + ahead);
    }
  }

 private:
  JIT_DEVICE void load_step(int i) { steps_[i % ahead] = StepNumbers(tile_, i); }

  StepNumbers steps_[ahead > 0 ? ahead : 1];
  unsigned tile_;
};

template <class Config>
using ScorePart = Accumulator<MmaLayout, 16, KernelTraits<Config>::mma_k>;

/// Calls f(n, j) for each value of a lane.
template <class Product, class F>
JIT_DEVICE void for_each_value(F f) {
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int j = 0; j < MmaLayout::block_values; ++j) f(n, j);
  }
}

/// The position of a warp's scores: first key, first query and query head.
struct ScorePlace {
  int first_key;
  int first_query;
  int head;
  unsigned rows = 0;  ///< shared address of positions of rows; of tiles that lists have put together
};

/// Turns scores of k-step `i` of a tile into probabilities, in place, and sets `weights` to f′. `place` is used only if
/// the tile is partial or the score functor is not an identity, `kept` (kept_word) if it is partial and its mask was asked
/// ahead.
template <class Config, bool is_partial>
JIT_DEVICE void exponentiate_part(ScorePart<Config>& scores, ScorePart<Config>& weights, int i,
                                  const ScorePlace& place, const AttentionParams& params,
                                  const KeyTile<Config>& keys, float exponent, const StepNumbers& lse_log2,
                                  unsigned kept) {
  using Score = typename Config::Score;
  using Part = ScorePart<Config>;
  constexpr bool is_asked_now = is_partial && KernelTraits<Config>::asks_mask == AsksMask::per_part;
  for_each_value<Part>([&](int n, int j) { weights.registers[0][n][j] = 1; });
  if constexpr (is_asked_now || !Score::is_identity) {
    const int thread = reread_thread_index() % warpgroup_size;
    const int key = place.first_key + thread / warp_size * 16 + MmaLayout::lane_row(thread);
    const int query = place.first_query + i * KernelTraits<Config>::mma_k + MmaLayout::lane_column(thread);
    if constexpr (has_listed_queries<Config>) {
      differentiate_listed<Config, is_partial>(
          scores, weights, key, place.rows, query, params.softmax_scale,
          [&](int head) { return keys.sequences(params).context(keys.batch, place.head + head); });
    } else {
      const BlockContext context = keys.sequences(params).context(keys.batch, place.head);
      // mutate: NoTileEnds
      differentiate_score<KeysByQueries, !is_partial>(scores, weights, key, query, Score(context),
                                                      params.softmax_scale, context);
      if constexpr (is_asked_now)
        drop_masked_scores<KeysByQueries>(scores, key, query, TileMask<Config>(context), context);
    }
  }
  if constexpr (is_partial && KernelTraits<Config>::asks_mask == AsksMask::beside_products) {
    drop_all_but(scores, kept, i * Part::column_blocks * MmaLayout::block_values);
  }
  exponentiate_scores(scores, exponent, lse_log2);
}

/// The kept scores of a step, of a warp whose keys begin `warp_row` after the block's: drawn, or loaded if precomputed.
template <class Config>
JIT_DEVICE auto draw_kept_scores(const Pipelines<Config>& pipelines, unsigned step,
                                 const AttentionParams& params, const DropoutParams& dropout,
                                 const KeyTile<Config>& keys, int warp_row) {
  using Traits = KernelTraits<Config>;
  using Kept = KeptOf<Config, KeysByQueries, typename Traits::Scores>;
  if constexpr (has_dropout_mask_ahead<Config>) {
    const unsigned info = pipelines.info(step);
    // mutate: DrawnHeadsAlike
    return Kept(dropout.mask, keys.batch * params.heads_q + load_query_info_head(info),
                load_query_info_query(info), keys.k_begin + warp_row);
  } else if constexpr (has_dropout<Config>) {
    const unsigned info = pipelines.info(step);
    const auto head =
        dropout_head<Config>(dropout, params.heads_q, keys.batch, load_query_info_head(info), params.tensors);
    const int query = load_query_info_query(info), key = keys.k_begin + warp_row;
    if constexpr (Traits::has_roles) {
      return Kept(head, query, key);
    } else {
      constexpr int step_bytes = draw_bytes(Config::tile_kv);
      constexpr int pair_bytes = step_bytes / (Config::tile_kv / dropout_group_keys);
      const int pair = warp_row / dropout_group_keys;
      return Kept(head, query, key,
                  // mutate: AllPairsInOnePlace
                  {pipelines.smem + Traits::layout.draws + step % 2 * step_bytes + pair * pair_bytes,
                   Traits::draw_barriers + pair});
    }
  } else {
    return NoDropout{};
  }
}

/// Shared address of the thread's first values of W = P ∘ f′, stored in fp32 in accumulator order: for each block of 8
/// queries, four values of each of 128 threads.
inline constexpr int w_block_bytes = warpgroup_size * 16;
template <class Config>
JIT_DEVICE unsigned own_w(const Pipelines<Config>& pipelines) {
  return pipelines.w.tile(0) + reread_thread_index() % warpgroup_size * 16;
}

/// A warp's 16 keys of dS, rounded, transposed to the columns of a panel at shared address `panel`, whose rows are
/// queries.
template <class Config>
JIT_DEVICE void store_ds(unsigned panel, const unsigned (&ds)[KernelTraits<Config>::query_steps][4]) {
  using Tile = typename KernelTraits<Config>::DsTile;
  const unsigned thread = threadIdx.x % warpgroup_size;
  const unsigned row = thread % warp_size / 16 * 8 + thread % 8;
  const unsigned chunk = (thread / warp_size * 2 + thread / 8 % 2) ^ thread % 8;
  const unsigned own = panel + row * Tile::row_bytes + chunk * chunk_bytes;
#pragma unroll
  for (int i = 0; i < KernelTraits<Config>::query_steps; ++i)
    stmatrix_x4_trans(own + i * KernelTraits<Config>::mma_k * Tile::row_bytes, ds[i]);
}

}  // namespace jit::backward_wgmma
