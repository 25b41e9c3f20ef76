// Scores of a tile of keys, from S = Q Kᵀ to P, the operand of P V: mask and score functors, softmax, dropout.
//
// Softmax computes the row maxima of each tile or, with Rescale::on_overflow, only of the first tile and of tiles whose
// exponentials are too large.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/consumer_keys.cuh"
#include "forward_wgmma/consumer_output.cuh"
#include "forward_wgmma/traits.cuh"
#include "jit/options.h"
#include "mainloop/consumer_functors.cuh"
#include "mainloop/consumer_queries.cuh"
#include "pipeline/warpgroup_order_barrier.cuh"
#include "problem/functor.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/exponentiate_by_steps.cuh"
#include "steps/interpolated_weights.cuh"
#include "steps/largest_known.cuh"
#include "steps/precomputed_dropout.cuh"
#include "steps/softmax.cuh"
#include "steps/wgmma_products.cuh"

namespace jit::forward_wgmma {

/// Whether largest scores of heads are looked for where they may be larger than is known alone: rows' own are not wanted, and
/// spans have maxima of their own.
template <class Config>
inline constexpr bool looks_for_largest_later =
    KernelTraits<Config>::lazy_maxima && !KernelTraits<Config>::has_spans && has_max_logit<Config> &&
    !has_row_max<Config>;

/// Tiles of a span of which some are likely to move a row's maximum.
template <bool are_counted>
struct MovingTiles {};
template <>
struct MovingTiles<true> {
  int moving_tiles = 0;
};

/// S and P of a consumer, and the maxima and sums of its rows.
template <class Config>
class ConsumerScores : LargestKnown<Config, looks_for_largest_later<Config>>,
                       MovingTiles<KernelTraits<Config>::has_spans> {
  using Largest = LargestKnown<Config, looks_for_largest_later<Config>>;
  using Traits = KernelTraits<Config>;
  using Score = typename Config::Score;
  using Keys = ConsumerKeys<Config>;
  using Queries = ConsumerQueries<KernelTraits<Config>>;
  using Weight = typename Traits::Weight;
  using RowFactors = float[Traits::Scores::rows];
  using Kept = KeptOf<Config, QueriesByKeys, typename Traits::Scores>;
  using Seed = typename ChosenType<has_dropout_mask_ahead<Config>, NoDropout, DropoutSeedOf<Config>>::type;

 public:
  /// Whether P is packed while exponentials are computed. P V of the tile before must have ended by then.
  static constexpr bool packs_early = Traits::multiplies_fp8 && !has_block_scales<Config>;

  /// Whether large maxima are tested for: not if the score functor bounds them, and not with fp8 keys, whose kernels
  /// have no registers left for the test (docs/kernels.md).
  static constexpr bool asks_for_large_maxima =
      !packs_early && !Traits::upcasts && !(largest_score<Score> * log2_e < largest_offset);

  /// Maxima and sums of the rows.
  using State = RowsState<keeps_largest_scores<Config> && !Largest::is_bound,
                          typename ChosenType<asks_for_large_maxima, SoftmaxState<Traits::Scores::rows>,
                                              BoundedSoftmaxState<Traits::Scores::rows>>::type,
                          has_mean_score<Config>>;

  /// Whether the turn is passed after the maxima, before the wait for P V of the tile before. If products take longer
  /// than exponentials, the next consumer's products then follow without a gap.
  static constexpr bool passes_early = packs_early && Config::order == WarpgroupOrder::ping_pong &&
                                       Config::head_dim + Config::head_dim_v >= 384;

  /// Whether the limits that scores may reach before maxima move are computed in advance. Then least_sum_ is kept, too:
  /// the row sum from which maxima may move early, and exponentials may be interpolated.
  static constexpr bool precomputes_limits = packs_early;

  /// Whether limits of exponentials below which rows keep their maxima are found under the product before: among the
  /// exponentials of a tile, four shuffles would move most of ptxas' schedule.
  static constexpr bool finds_stays = Traits::has_spans && Traits::lazy_maxima;

  /// Whether some exponentials are interpolated, in rows whose weight is spread over many keys.
  static constexpr bool interpolates = Config::interpolated_exp2 > 0;
  static_assert(Config::interpolated_exp2 >= 0 && Config::interpolated_exp2 <= exponential_group / 2,
                "at most half of the exponentials are interpolated, as least_sum_of_keys has it");
  static_assert(!interpolates || precomputes_limits,
                "limits of scores, and what rows weigh, tell where exponentials may be interpolated");

  /// Whether each tile tests if the weight of its rows is spread over many keys.
  static constexpr bool asks_for_spread = interpolates || Traits::sums_by_products;
  static_assert(!asks_for_spread || precomputes_limits);

  JIT_DEVICE ConsumerScores(const AttentionParams& params, const DropoutParams& dropout, int consumer)
      : params_(params),
        dropout_mask_(dropout.mask),
        dropout_(seed_of(dropout)),
        consumer_(consumer),
        order_barrier_(consumer),
        p_(consumer) {}

  /// Clears the state, before the first tile of a work tile.
  JIT_DEVICE void begin() { state_ = State(); }
  /// The state of all tiles so far. Row sums lack the last tile's share (`product_share`), which is 0 if LSE is wanted.
  JIT_DEVICE State state() const {
    State state = state_;
    if constexpr (Traits::lazy_maxima && has_row_max<Config>) {
      for (float& largest : state.largest)
        largest = MmaLayout::reduce(largest, [](float x, float y) { return fmaxf(x, y); });
    }
    return state;
  }
  /// With sums_by_products: the row sums of all tiles without the last tile's share (`product_share`).
  JIT_DEVICE RowFactors& sums() { return state_.row_sum; }
  JIT_DEVICE const RowFactors& sums() const { return state_.row_sum; }
  /// With sums_by_products: the factor by which each lane adds the sums from P V of the last tile to its row sums.
  JIT_DEVICE float product_share() const { return product_share_; }
  /// The order in which consumers issue wgmma.
  JIT_DEVICE const WarpgroupOrderBarrier<Traits>& order_barrier() const { return order_barrier_; }

  /// Keeps earlier writes to the accumulators of S before the fence of the next wgmma.
  JIT_DEVICE void hold_tile() { wgmma_hold(scores_.registers[0]); }
  /// Issues S = Q Kᵀ as one wgmma group.
  JIT_DEVICE void multiply(const Queries& queries, unsigned q_tile, unsigned k_tile) {
    queries.multiply(scores_, q_tile, k_tile);
  }
  /// Draws the dropout mask of the tile, or starts loading it if it was precomputed. Overlaps with S.
  JIT_DEVICE void draw_kept(const Queries& queries, const Keys& keys) {
    if constexpr (has_dropout_mask_ahead<Config>) {
      const auto& work = queries.work();
      kept_ = Kept(dropout_mask_, work.batch * params_.heads_q + work.head, work.q_begin + queries.warp_row(),
                   keys.first_key());
    } else if constexpr (has_dropout<Config>) {
      const auto& work = queries.work();
      kept_ = kept_scores<QueriesByKeys, typename Traits::Scores>(
          dropout_head<Config>(dropout_, params_.heads_q, work.batch, work.head, params_.tensors),
          work.q_begin + queries.warp_row(), keys.first_key());
    }
  }
  /// Computes the limits that scores may reach before maxima move. Overlaps with S.
  JIT_DEVICE void find_limits(const Queries& queries) {
    if constexpr (precomputes_limits) {
      score_limits<Weight>(state_, queries.scale_log2(), limits_);
      least_sum_ += least_sum_of_keys(Config::tile_kv);
    } else if constexpr (finds_stays) {
#pragma unroll
      for (int r = 0; r < Traits::Scores::rows; ++r)
        limits_[r] = limit_of_stay<Weight>(state_.row_sum[r]);  // mutate: LimitsOfLargerSums
    }
  }

  /// Finishes the first S of a work tile, after the wait for it: computes the exponentials and releases K.
  JIT_DEVICE void finish_first(Queries& queries, Keys& keys) {
    if constexpr (Largest::is_bound) {
      const float known = Largest::ask(params_, queries.whole_work().head);  // on its way meanwhile
      take_first(queries, keys);
      Largest::forget();
      raise_largest(queries, state_.row_max);
      exponentiate(queries);
      Largest::know(known);
    } else {
      take_first(queries, keys);
      exponentiate(queries);
    }
  }

  /// Finishes the first S of a later span of the work tile.
  JIT_DEVICE void finish_first_of_span(Queries& queries, Keys& keys) {
    const State before = state_;
    finish_first(queries, keys);
    if constexpr (State::keeps_largest) keep_largest(state_, before.largest);
  }

  /// Finishes S of a tile that is not the first. Returns whether O must be rescaled by `correction`.
  JIT_DEVICE bool finish(Queries& queries, Keys& keys, RowFactors& correction) {
    hold_tile();
    if constexpr (Traits::lazy_maxima) {
      const bool move = exponentiate_or_repeat(queries, keys, correction);
      keys.release_k();  // mutate: ReleasesKBeforeItIsMultipliedAgain
      return move;
    } else {
      apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
      keys.release_k();
      const bool move = update_maxima(queries, correction);
      exponentiate(queries);
      return move;
    }
  }

  /// Packs the exponentials into P and applies dropout; row sums include dropped keys.
  JIT_DEVICE void pack() { p_.pack_scores(scores_, kept_); }

  /// Replaces `finish_first` and `pack` if `packs_early`. Calls `finish_output()` where P V of the tile before must
  /// have ended.
  template <bool in_turn, class FinishOutput>
  JIT_DEVICE void finish_first_early(Queries& queries, Keys& keys, const FinishOutput& finish_output) {
    take_first(queries, keys);
    if constexpr (passes_early && in_turn) order_barrier_.pass();  // mutate: OrderKeptBehindFirstMaxima
    finish_output();
    exponentiate_and_pack(queries, keys);
  }
  /// Replaces `finish` and `pack` if `packs_early`. Calls `scale_output` with the factors by which O must be rescaled.
  template <class FinishOutput, class ScaleOutput>
  JIT_DEVICE void finish_early(Queries& queries, Keys& keys, const FinishOutput& finish_output,
                               const ScaleOutput& scale_output) {
    RowFactors correction;
    hold_tile();
    apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
    // If the turn is passed after the wait for P V, maxima are computed before that wait: they are free during P V, but
    // would cost the next consumer's time within the turn, into which ptxas would move them.
    if constexpr (passes_early) keys.release_k();
    RowFactors of_lane;
    bool move = may_exceed(scores_, limits_, of_lane);
    if constexpr (!passes_early) keys.release_k_behind(move);      // mutate: KeysKept
    if constexpr (passes_early) order_barrier_.pass_behind(move);  // mutate: OrderKeptBehindMaxima
    finish_output();
    bool are_spread = asks_for_spread;
    if (move) {
      if constexpr (interpolates) are_spread = are_known(of_lane, limits_);
      move = raise_to_scores(scores_, limits_, of_lane, state_, queries.scale_log2(), least_sum_, correction);
      if (move) scale_output(correction);
    }
    set_offsets(state_, queries.scale_log2());
    if constexpr (asks_for_spread) are_spread = are_spread && weigh_enough(state_.row_sum, least_sum_);
    exponentiate_and_pack(queries, keys, are_spread);
  }

  /// Issues O += P V as one wgmma group. With `lower` it omits the upper half of the keys.
  JIT_DEVICE void multiply_values(ConsumerOutput<Config>& output, unsigned v_tile, bool lower) const {
    p_.multiply_pv(output.tile(), output.tile_sums(), v_tile, lower);
  }
  /// Keeps P in its registers until P V has ended. Called after the wait for P V.
  JIT_DEVICE void hold_p() { p_.hold(); }

 private:
  // The seed; empty if the dropout mask is precomputed.
  static JIT_DEVICE Seed seed_of(const DropoutParams& dropout) {
    if constexpr (has_dropout_mask_ahead<Config>) {
      return {};
    } else {
      return dropout_seed<Config>(dropout);
    }
  }

  // Computes the maxima of the first tile of a work tile, and releases K.
  JIT_DEVICE void take_first(Queries& queries, Keys& keys) {
    hold_tile();
    if constexpr (Traits::has_spans) this->moving_tiles = 1;
    apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
    keys.release_k();
    if constexpr (has_block_factors<Config>) {
      begin();
      auto& factors = queries.scales().factors();
      factors.maxima(scores_, state_.row_max);
      relate_to_maxima(state_, queries.scale_log2(), factors.subtract_from(scores_));
    } else {
      begin_maximum<Traits::rescale>(scores_, state_, queries.scale_log2());
    }
    // mutate: KeysOfEarlierWorkTilesCount
    if constexpr (precomputes_limits) least_sum_ = least_sum_of_keys(Config::tile_kv);
    if constexpr (asks_for_spread) {
      if (!are_small(state_.row_max, queries.scale_log2()))
        least_sum_ = -negative_infinity();  // no row sum reaches it
    }
  }

  JIT_DEVICE bool update_maxima(Queries& queries, RowFactors& correction) {
    if constexpr (has_block_factors<Config>) {
      float of_tile[Traits::Scores::rows];
      queries.scales().factors().maxima(scores_, of_tile);
      return take_maxima<Traits::rescale, Weight>(of_tile, state_, queries.scale_log2(), correction,
                                                  queries.scales().factors().subtract_from(scores_));
    } else {
      return update_maximum<Traits::rescale, Weight>(scores_, state_, queries.scale_log2(), correction);
    }
  }

  JIT_DEVICE void exponentiate(Queries& queries) {
    if constexpr (has_block_factors<Config>) {
      queries.scales().factors().exponentiate(scores_, state_, queries.scale_log2(),
                                              probability_raise<Weight>);
    } else {
      jit::exponentiate(scores_, state_, queries.scale_log2(), probability_raise<Weight>);
    }
  }

  // Packs exponentials into P k-step by k-step, and looks for the next tile of keys meanwhile. With sums_by_products P
  // V sums rows whose weight is spread over many keys; else small weights would lose digits in the tensor core's sum.
  JIT_DEVICE void exponentiate_and_pack(const Queries& queries, Keys& keys, bool are_spread = false) {
    auto next = keys.try_next();
    constexpr bool by_products = Traits::sums_by_products;
    are_spread = are_spread && asks_for_spread && params_.lse == nullptr;   // mutate: ManyKeysShareAllRows
    if constexpr (by_products) product_share_ = are_spread ? 0.25f : 0.0f;  // mutate: SumsOfProductsToo
    if (are_spread) {
      exponentiate_by_steps<Config::interpolated_exp2, !by_products>(queries, state_.row_sum, next);
    } else {
      exponentiate_by_steps<0, true>(queries, state_.row_sum, next);
    }
    keys.remember(next);
  }

  template <int interpolations, bool adds_up>
  JIT_DEVICE void exponentiate_by_steps(const Queries& queries, RowFactors& row_sum,
                                        typename Keys::NextTile& next) {
    jit::exponentiate_by_steps<interpolations, adds_up>(
        scores_, state_.offset, row_sum, queries.scale_log2(), probability_raise<Weight>,
        [&](int step, const unsigned(&interpolated)[4]) -> const unsigned(&)[4] {
          if (step == 0) next.read();
          return p_.template pack_step<interpolations>(scores_, step, interpolated);
        });
  }

  // Computes exponentials relative to the maxima of earlier tiles. If these are too small, raises them to the maxima of
  // this tile; if exponentials have overflowed, computes S and the exponentials again.
  JIT_DEVICE bool exponentiate_or_repeat(Queries& queries, const Keys& keys, RowFactors& correction) {
    if constexpr (Traits::has_spans) return exponentiate_or_move_rows(queries, keys, correction);
    bool looks = false;
    if constexpr (Largest::is_bound) looks = Largest::is_near();
    for (bool repeated = false;; repeated = !looks) {
      apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
      if constexpr (Largest::is_bound) {
        if (looks || repeated) look(queries);
      }
      if (repeated) update_maximum<Rescale::always>(scores_, state_, queries.scale_log2(), correction);
      constexpr int rows = Traits::Scores::rows;
      float offsets[rows], sums[rows] = {};
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const float row_max = repeated ? finite_or_zero(state_.row_max[r]) : state_.row_max[r];
        offsets[r] = State::may_be_large && repeated ? state_.offset[r]
                                                     : row_max * scale_of_row(queries.scale_log2(), r);
      }
      keep_largest_of(scores_, state_);
      jit::exponentiate(scores_, offsets, queries.scale_log2(), sums);
      const auto add = [&] {
#pragma unroll
        for (int r = 0; r < rows; ++r) state_.row_sum[r] += sums[r];
      };
      if constexpr (Largest::is_bound) {
        if (__builtin_expect(!repeated && !looks &&
                                 __all_sync(full_warp, Largest::are_less(sums, offsets) &
                                                           stay_in_range<Weight>(sums, offsets, state_)),
                             true)) {
          add();
          return false;
        }
        // mutate: LargestScoresAreNotLookedFor
        if (__builtin_expect(!repeated && !looks && Largest::may_be_less(scores_, offsets), false)) {
          looks = true;
          queries.multiply_by_warp(scores_, keys.k_tile());
          continue;
        }
      }
      // mutate: OverflowGoesUnnoticed
      if (__builtin_expect(repeated || !stands_out<Weight>(sums, offsets, state_), true)) {
        add();
        return repeated;
      }
      if (!is_overflow<Weight, State>(sums, offsets)) {
        add();
        const bool move = raise_maximum(scores_, state_, queries.scale_log2(), correction);
        if constexpr (Largest::is_bound) {
          if (move) Largest::forget_rows();  // mutate: RoundedMaximaCountAsScores
        }
        return move;
      }
      looks = false;
      queries.multiply_by_warp(scores_, keys.k_tile());
    }
  }
  // Takes the largest scores of rows, as lanes have them, into what is known of the head.
  JIT_DEVICE void raise_largest(const Queries& queries, const RowFactors& of_lane) {
    if constexpr (Largest::is_bound) {
      const typename Traits::Work work = queries.whole_work();    // read again: it would take registers
      const int thread = reread_thread_index() % warpgroup_size;  // else its row would take one
      const int row = consumer_ * rows_per_warpgroup + thread / warp_size * 16 + MmaLayout::lane_row(thread);
      Largest::raise(params_, work.head, of_lane, work.q_begin + row,
                     seqlens_of<Config>(params_, work).q.length, queries.scale_log2());
    }
  }
  JIT_DEVICE void look(const Queries& queries) {
    RowFactors of_lane;
#pragma unroll
    for (int r = 0; r < Traits::Scores::rows; ++r)
      of_lane[r] = scores_.reduce_lane(r, [](float x, float y) { return fmaxf(x, y); });
    if constexpr (Largest::is_bound) {
      if (Largest::are_of_rows(of_lane, state_.row_max, queries.scale_log2())) return;
    }
    raise_largest(queries, of_lane);
  }

  // As above, bitwise as if maxima moved row by row: assumes that none moves; if one may, computes the tile again.
  JIT_DEVICE bool exponentiate_or_move_rows(Queries& queries, const Keys& keys, RowFactors& correction) {
    constexpr int rows = Traits::Scores::rows;
    if (--this->moving_tiles < 0) {
      float before[rows], offsets[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        before[r] = state_.row_sum[r];
        offsets[r] = state_.row_max[r] * scale_of_row(queries.scale_log2(), r);
      }
      apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
      keep_largest_of(scores_, state_);
      jit::exponentiate(scores_, offsets, queries.scale_log2(), state_.row_sum);
      // mutate: RowsThatMoveUnseen
      if (__builtin_expect(all_stay(scores_, state_, before, limits_, offsets), true)) return false;
      queries.multiply_by_warp(scores_, keys.k_tile());
#pragma unroll
      for (int r = 0; r < rows; ++r) state_.row_sum[r] = before[r];  // mutate: ExponentialsCountTwice
    }
    apply_functors_of_consumer<Traits>(scores_, queries, keys, consumer_);
    const bool move = update_maxima(queries, correction);
    exponentiate(queries);
    return move;
  }

  const AttentionParams& params_;
  const DropoutMaskBits& dropout_mask_;
  const Seed dropout_;
  const int consumer_;
  const WarpgroupOrderBarrier<Traits> order_barrier_;
  Probabilities<Traits> p_;
  typename Traits::Scores scores_;
  Kept kept_;  // of scores_
  State state_;
  RowFactors limits_;  // of scores, if precomputes_limits; of exponentials, if finds_stays
  float least_sum_;    // row sum of a row whose weight is spread over the keys so far, if precomputes_limits
  float product_share_ = 0;  // with sums_by_products
};

}  // namespace jit::forward_wgmma
