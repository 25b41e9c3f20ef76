// A consumer of a wgmma kernel: a warpgroup that owns 64 queries of each tile.
//
//     overlap:     S(n) = Q K(n)ᵀ ┐
//                  O += P V(n−1)  ┴─ wait for S(n) ─ mask, softmax ─ wait for O ─ rescale O ─ P(n)
//     no overlap:  S = Q Kᵀ ─ wait ─ mask, softmax, rescale O ─ P ─ O += P V ─ wait
//
// Softmax looks for maxima in each tile, or, with Rescale::on_overflow, only in the first and in those that
// turn out to need it.
#pragma once

#include "base/descale_params.cuh"
#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "forward_wgmma/direct_output.cuh"
#include "forward_wgmma/promoted_sums.cuh"
#include "forward_wgmma/rings.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/work.cuh"
#include "forward_wgmma/work_ring.cuh"
#include "problem/functor.cuh"
#include "problem/scores.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/math.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"
#include "steps/apply_functors.cuh"
#include "steps/dropout.cuh"
#include "steps/head_scales.cuh"
#include "steps/lse_shift.cuh"
#include "steps/softmax.cuh"
#include "steps/token_scales.cuh"
#include "steps/value_columns.cuh"
#include "steps/warpgroup_turns.cuh"
#include "steps/wgmma_products.cuh"
#include "steps/write_lse.cuh"

namespace jit::forward_wgmma {

/// Leaves O, of whose rows `inverse` is what they have been multiplied by, at the shared address `o_tile`, or
/// writes it, too, and finishes its columns on the way.
template <class Config>
__device__ __forceinline__ void write_output(const AttentionParams& params,
                                             const typename KernelTraits<Config>::KeptWork& work,
                                             int consumer, typename KernelTraits<Config>::Output& output,
                                             const typename KernelTraits<Config>::Columns& columns,
                                             const float (&inverse)[KernelTraits<Config>::Output::rows],
                                             unsigned o_tile) {
  using Traits = KernelTraits<Config>;
  using Element = OutputElement<Config>;
  const int lane = lane_id();
  const int lane_chunk = threadIdx.x / 16 % 2;  // not of lane_id(): fewer registers through the loop
  const int warp_row = reread_thread_index() % warpgroup_size / warp_size * 16;
  if constexpr (Config::direct_o) {
    store_output_rows<Config>(params, work, work.q_begin + consumer * rows_per_warpgroup + warp_row, output,
                              columns, inverse);
    return;
  }
  // Over Q: these rows are this warp's own, which no other warp multiplies with.
#pragma unroll
  for (int step = 0; step < Traits::Output::column_blocks / 2; ++step) {
    const unsigned address =
        Traits::OTile::chunk_address(o_tile, warp_row + lane % 16, 2 * step + lane_chunk);
#pragma unroll
    for (int i = 0; i < 4; ++i) columns.finish(output, i % 2, 2 * step + i / 2);
    if (finishes_columns<Config> && step % 2 != 0) __syncwarp();  // loads stay behind it
    unsigned o[4];
    output.template pack_step<Element>(o, 0, step);
    if constexpr (Traits::may_lack_keys) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[i] = keep_if_has_keys(o[i], inverse[i % 2]);
    }
    stmatrix_x4(address, o);
  }
  fence_proxy_async_shared();
}

/// Everything that one consumer warpgroup holds.
template <class Config>
class Consumer {
  using Traits = KernelTraits<Config>;
  using Mask = TileMask<Config>;
  using Score = typename Config::Score;
  using RowFactors = float[Traits::Scores::rows];
  using KeptWork = typename Traits::KeptWork;
  using Weight = typename Traits::Weight;
  // Products with rows that are multiplied as a power of two of what they are have factors: in exponents, where a score is
  // a product.
  static constexpr bool has_query_factors = Queries<Traits>::has_factors && Score::is_identity;

 public:
  __device__ __forceinline__ Consumer(const AttentionParams& params, const DropoutParams& dropout,
                                      const DescaleParams& descale, const TensorMaps& maps, unsigned smem)
      : params_(params),
        dropout_(dropout),
        descale_(descale),
        smem_(smem),
        consumer_(uniform(threadIdx.x / warpgroup_size - 1)),
        scales_(params, descale),
        scale_log2_(first_scale(params)),
        work_ring_(params, maps, smem),
        rings_(smem),
        turns_(consumer_),
        p_(smem + Traits::layout.p, consumer_) {}

  __device__ __forceinline__ void run() {
    bool has_work = take_work();
    while (has_work) {
      clear_output();
      state_ = SoftmaxState<Traits::Scores::rows>();
      Outcome outcome{work_, false, false};
      if (!has_keys()) {
        release_k();
        finish_rows_of_work();
      } else if constexpr (Config::overlap) {
        outcome = run_overlapped();
      } else {
        run_in_sequence();
        finish_rows_of_work();
      }
      finish_work(outcome.done);
      has_work = outcome.has_asked ? outcome.has_work : next_work();
    }
  }

 private:
  // Whether P is packed while exponentials are computed, which P V of the tile before must have ended for.
  static constexpr bool packs_early = Traits::multiplies_fp8 && Config::overlap && !has_block_scales<Config>;

  /// Whether the scales of queries are factors of exponents: a functor wants to see whole scores.
  static constexpr bool scales_exponents = has_token_scales<Config> && Score::is_identity;
  using Scales = typename ChosenType<scales_exponents, TokenScales<Config, typename Traits::Scores>,
                                     HeadScales<Config, typename Traits::Scores>>::type;
  using ExponentScale = typename ChosenType<scales_exponents || has_query_factors,
                                            RowScales<Traits::Scores::rows>, float>::type;
  static __device__ __forceinline__ ExponentScale first_scale(const AttentionParams& params) {
    if constexpr (scales_exponents || has_query_factors) {
      return {};
    } else {
      return exponent_scale<Score>(params.softmax_scale);
    }
  }

  // Where a run over work tiles ends: its last one, which is to be written, and whether there is a next one,
  // if it has asked.
  struct Outcome {
    KeptWork done;
    bool has_asked;
    bool has_work;
  };

  // Computes work tiles until there is none left, or one without keys comes.
  __device__ __forceinline__ Outcome run_overlapped() {
    q_.multiply_qk(scores_, q_ring().tile(), rings_.k.tile());
    draw_kept_scores();
    wgmma_wait_group<0>();
    finish_first_scores();
    pack_scores();
    while (true) {
      while (!is_last()) {
        take_keys();
        start_scores_and_output(false);  // only the last tile of a work tile is worth a second copy of P V
        finish_scores_and_output();
      }
      const bool lower = is_lower();
      skip_keys();
      finish_rows_of_work();
      const KeptWork done = work_;
      bool has_work = false;
      if constexpr (Traits::runs_on) {
        // The first scores of the next work tile are computed under the last output of this one.
        has_work = next_work();
        if (has_work && has_keys()) {
          start_scores_and_output(lower);
          finish_first_scores_and_output();
          skip_values();
          finish_work(done);
          clear_output();
          continue;
        }
      }
      rings_.v.wait_full();
      p_.multiply_pv(output_, rings_.v.tile(), lower);
      finish_output();
      skip_values();
      return {done, Traits::runs_on, has_work};
    }
  }

  __device__ __forceinline__ void run_in_sequence() {
    for (bool is_first = true;; is_first = false) {
      q_.multiply_qk(scores_, q_ring().tile(), rings_.k.tile());
      draw_kept_scores();
      wgmma_wait_group<0>();
      RowFactors correction;
      if (Config::rescale == Rescale::on_overflow && is_first) {
        finish_first_scores();
      } else if (finish_scores(correction)) {
        scale_output(correction);
      }
      pack_scores();
      rings_.v.wait_full();
      p_.multiply_pv(output_, rings_.v.tile(), is_lower());
      finish_output();
      if (is_last()) break;
      take_keys();
    }
    skip_keys();
    skip_values();
  }

  // Which scores of the tile of keys are kept, while they are multiplied.
  __device__ __forceinline__ void draw_kept_scores() {
    if constexpr (has_dropout<Config>) {
      kept_ = kept_scores<QueriesByKeys, typename Traits::Scores>(
          dropout_head<Config>(dropout_, params_.heads_q, work_.batch, work_.head),
          work_.q_begin + warp_row(), load_key_note_begin(key_note<Config>(smem_, rings_.k.stage())));
    }
  }

  // The first row of a work tile's that the warp has.
  __device__ __forceinline__ int warp_row() const {
    return consumer_ * rows_per_warpgroup + threadIdx.x % warpgroup_size / warp_size * 16;
  }

  // Exponentials become the P that is multiplied: their sums are those of all keys.
  __device__ __forceinline__ void pack_scores() {
    drop(scores_, kept_);
    p_.pack_scores(scores_);
  }

  // Moved at each use: addresses of their own would take registers through the loop.
  __device__ __forceinline__ auto q_ring() const { return q_ring_of<Config>(rings_.q, consumer_); }
  __device__ __forceinline__ auto o_ring() const { return o_ring_of<Config>(rings_.o, consumer_); }

  // Waits for a work tile, its queries and its first keys; false when there is none left.
  __device__ __forceinline__ bool take_work() {
    const Work<Config> work = work_ring_.take();
    if (!is_work(work)) return false;
    work_ = work;
    scales_.take_scores(work, warp_row(), [&] { return context_of<Config>(params_, work); });
    if constexpr (scales_exponents) {
      scale_log2_ = scales_.exponents();
    } else if constexpr (keys_are_fp8<Config> && !has_query_factors) {
      scale_log2_ = exponent_scale<Score>(scales_.of_scores());
    }
    score_ = Score(context_of<Config>(params_, work));
    q_ring().wait_full();
    take_queries();
    take_keys();
    return true;
  }

  __device__ __forceinline__ void take_queries() {
    if constexpr (Queries<Traits>::has_factors) {
      q_.take(q_ring().tile(), Traits::probabilities_barrier + consumer_, query_factors_);
      if constexpr (has_query_factors) {
        // Within what does not make 0 of an infinity: below, nothing is left of a product, and above, nothing beside one.
        constexpr float least = 0x1p-100f, most = 0x1p100f;
#pragma unroll
        for (int r = 0; r < Traits::Scores::rows; ++r) {
          scale_log2_.of_rows[r] =
              fminf(fmaxf(exponent_scale<Score>(scales_.of_scores()) * query_factors_[r], least), most);
        }
      }
    } else {
      q_.take(q_ring().tile());
    }
  }

  // Lengths are read again where they differ: they would take registers through the loop.
  __device__ __forceinline__ BlockContext context() const { return work_ring_.context(work_); }

  // Goes on to the next one. All scores of the last one have been computed.
  __device__ __forceinline__ bool next_work() {
    if constexpr (!Config::persistent) return false;
    if constexpr (!Traits::o_over_q) q_ring().arrive_empty();
    rings_.q.advance();
    return take_work();
  }

  // Waits for the next tile of keys.
  __device__ __forceinline__ void take_keys() {
    if (next_flags_ != key_flags_unknown) {
      if constexpr (keys_by_lanes<Config>) rings_.k.wait_full();
      flags_ = next_flags_;
      next_flags_ = key_flags_unknown;
      return;
    }
    rings_.k.wait_full();
    flags_ = load_key_note_flags(key_note<Config>(smem_, rings_.k.stage()));
  }
  // The last one of which this consumer sees some.
  __device__ __forceinline__ bool is_last() const { return (flags_ & key_note_last << consumer_) != 0; }
  __device__ __forceinline__ bool is_lower() const { return (flags_ & key_note_lower << consumer_) != 0; }
  __device__ __forceinline__ bool has_keys() const { return (flags_ & key_note_none) == 0; }
  __device__ __forceinline__ void release_k() {
    rings_.k.arrive_empty();
    rings_.k.advance();
  }
  __device__ __forceinline__ void release_v() {
    rings_.v.arrive_empty();
    rings_.v.advance();
  }

  // Behind the last tile of keys: what others see takes no more than the turns. Values are released later,
  // behind those that are still to be multiplied with.
  __device__ __forceinline__ void skip_keys() {
    if constexpr (Traits::most_skipped == 0) return;
    while ((flags_ & key_note_end) == 0) {
      take_keys();
      turns_.wait();
      turns_.pass();
      release_k();
      ++skipped_;
    }
  }
  __device__ __forceinline__ void skip_values() {
    if constexpr (Traits::most_skipped == 0) return;
    for (; skipped_ > 0; --skipped_) {
      rings_.v.wait_full();  // before, the stage is still of the round before
      release_v();
    }
  }

  // Issues S of this tile of keys and, behind it, O += P V of the tile before, of which `lower` leaves out
  // the upper half.
  __device__ __forceinline__ void start_scores_and_output(bool lower) {
    constexpr bool in_turn = Config::order == WarpgroupOrder::ping_pong;
    const bool has_values = packs_early && rings_.v.is_full();
    if constexpr (in_turn) turns_.wait();
    if constexpr (packs_early) wgmma_hold(scores_.registers[0]);  // all of them is written before the fence
    q_.multiply_qk(scores_, q_ring().tile(), rings_.k.tile());
    if (!has_values) rings_.v.wait_full();
    p_.multiply_pv(output_, rings_.v.tile(), lower);
    if constexpr (in_turn && !packs_early) turns_.pass();
    draw_kept_scores();
    if constexpr (packs_early && Config::rescale == Rescale::lazy)
      score_limits<Weight>(state_, scale_log2_, limits_);
    wgmma_wait_group<1>();
  }

  // After the wait for S of a later tile, under whose P V of the tile before it was: leaves P, and O with the sums that
  // it belongs to.
  __device__ __forceinline__ void finish_scores_and_output() {
    RowFactors correction;
    if constexpr (packs_early) {
      hold_scores();
      apply_functors();
      release_k();
      bool move;
      if constexpr (Config::rescale == Rescale::lazy) {
        RowFactors of_lane;
        move = may_exceed(scores_, limits_, of_lane);
        finish_output_in_turn();
        if (move) {
          move = raise_to_scores(scores_, limits_, of_lane, state_, scale_log2_, correction);
          if (move) scale_output(correction);
        }
      } else {
        move = update_maxima(correction);
        finish_output_in_turn();
        if (move) scale_output(correction);
      }
      exponentiate_and_pack();
    } else {
      const bool move = finish_scores(correction);
      finish_output();
      if (move) scale_output(correction);
      pack_scores();
    }
  }

  // The same of the first S of a work tile.
  __device__ __forceinline__ void finish_first_scores_and_output() {
    if constexpr (packs_early) {
      hold_scores();
      apply_functors();
      release_k();
      begin_maximum(scores_, state_);
      finish_output_in_turn();
      exponentiate_and_pack();
    } else {
      finish_first_scores();
      finish_output();
      pack_scores();
    }
  }

  __device__ __forceinline__ void finish_output_in_turn() {
    finish_output();
    if constexpr (Config::order == WarpgroupOrder::ping_pong) turns_.pass();
  }

  // Exponentials become P step by step, and the next keys are looked for meanwhile.
  __device__ __forceinline__ void exponentiate_and_pack() {
    constexpr bool in_turn = Config::order == WarpgroupOrder::softmax_lock;
    constexpr int step_blocks = Traits::mma_k / Traits::Scores::Layout::block_columns;
    if constexpr (in_turn) turns_.wait();
    const bool has_keys = rings_.k.is_full();
    const unsigned note = key_note<Config>(smem_, rings_.k.stage());
    int flags = key_flags_unknown;
    exponentiate_by_steps<Config::polynomial_exp2, step_blocks>(
        scores_, state_, scale_log2_, probability_raise<Weight>, [&](int step) {
          p_.pack_step(scores_, step);
          if (step == 0) flags = load_key_note_flags_if(has_keys, note, key_flags_unknown);
        });
    if constexpr (in_turn) turns_.pass();
    flags = uniform(flags);
    next_flags_ = __all_sync(full_warp, has_keys) ? flags : key_flags_unknown;
  }

  // After the wait for the first S of a work tile: scores become exponentials, and K is released.
  __device__ __forceinline__ void finish_first_scores() {
    hold_scores();
    apply_functors();
    release_k();
    if constexpr (has_block_factors<Config>) {
      state_ = SoftmaxState<Traits::Scores::rows>();
      scales_.factors().maxima(scores_, state_.row_max);
    } else {
      begin_maximum(scores_, state_);
    }
    exponentiate_in_turn();
  }

  // The same for later ones. Returns whether the output must be rescaled by `correction`.
  __device__ __forceinline__ bool finish_scores(RowFactors& correction) {
    hold_scores();
    if constexpr (Config::rescale == Rescale::on_overflow) {
      const bool move = exponentiate_or_repeat(correction);
      release_k();
      return move;
    } else {
      apply_functors();
      release_k();
      const bool move = update_maxima(correction);
      exponentiate_in_turn();
      return move;
    }
  }

  __device__ __forceinline__ bool update_maxima(RowFactors& correction) {
    if constexpr (has_block_factors<Config>) {
      float of_tile[Traits::Scores::rows];
      scales_.factors().maxima(scores_, of_tile);
      return take_maxima<Config::rescale, Weight>(of_tile, state_, scale_log2_, correction);
    } else {
      return update_maximum<Config::rescale, Weight>(scores_, state_, scale_log2_, correction);
    }
  }

  __device__ __forceinline__ void hold_scores() {
    wgmma_hold(scores_.registers[0]);
    q_.hold();
  }

  // Relative to the maxima of earlier tiles; where that is not enough, brought up to those of this one, too, or
  // computed once more.
  __device__ __forceinline__ bool exponentiate_or_repeat(RowFactors& correction) {
    for (bool repeated = false;; repeated = true) {
      apply_functors();
      if (repeated) update_maximum<Rescale::always>(scores_, state_, scale_log2_, correction);
      constexpr int rows = Traits::Scores::rows;
      float row_max[rows], sums[rows] = {};
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        row_max[r] = repeated ? finite_or_zero(state_.row_max[r]) : state_.row_max[r];
      }
      exponentiate<Config::polynomial_exp2>(scores_, row_max, scale_log2_, sums);
      const auto add = [&] {
#pragma unroll
        for (int r = 0; r < rows; ++r) state_.row_sum[r] += sums[r];
      };
      if (__builtin_expect(repeated || !stands_out<Weight>(sums, state_), true)) {
        add();
        return repeated;
      }
      if (!is_overflow<Weight>(sums)) {
        add();
        return raise_maximum(scores_, state_, scale_log2_, correction);
      }
      q_.multiply_qk_by_warp(scores_, q_ring().tile(), rings_.k.tile());
    }
  }

  // Leaves the scores as the mask and score functors want them.
  __device__ __forceinline__ void apply_functors() {
    scales_.scale_scores(scores_, key_scales_of<Config>(smem_, rings_.k.stage()));
    if constexpr (Queries<Traits>::has_factors && !has_query_factors) scores_.scale_rows(query_factors_);
    if (Score::is_identity && (flags_ & key_note_partial) == 0) return;
    const int thread = reread_thread_index() % warpgroup_size;
    const int q = work_.q_begin + consumer_ * rows_per_warpgroup + thread / warp_size * 16 +
                  MmaLayout::lane_row(thread);
    const int k =
        load_key_note_begin(key_note<Config>(smem_, rings_.k.stage())) + MmaLayout::lane_column(thread);
    const unsigned words = key_words_of<Config>(smem_, rings_.k.stage()) + MmaLayout::lane_column(thread) * 4;
    const ScorePlace place{q, k, words};
    const BlockContext here = context();
    jit::apply_functors<MaskQuery::shortest>(scores_, place, score_, scales_.of_scores(), Mask(here), here,
                                             (flags_ & key_note_partial) != 0);
  }

  __device__ __forceinline__ void exponentiate_in_turn() {
    constexpr bool in_turn = Config::order == WarpgroupOrder::softmax_lock;
    if constexpr (in_turn) turns_.wait();
    if constexpr (has_block_factors<Config>) {
      scales_.factors().template exponentiate<Config::polynomial_exp2>(scores_, state_, scale_log2_,
                                                                       probability_raise<Weight>);
    } else {
      exponentiate<Config::polynomial_exp2>(scores_, state_, scale_log2_, probability_raise<Weight>);
    }
    if constexpr (in_turn) turns_.pass();
  }

  // Waits for O and releases V.
  __device__ __forceinline__ void finish_output() {
    wgmma_wait_group<0>();
    wgmma_hold(output_.registers[0]);
    p_.hold();
    release_v();
    sums_.take(output_);
  }

  __device__ __forceinline__ void clear_output() {
    output_.clear();
    sums_.begin();
  }
  __device__ __forceinline__ void scale_output(const RowFactors& factors) {
    output_.scale_rows(factors);
    sums_.scale_rows(factors);
  }

  // When all scores of the work tile are done: writes LSE. What is left of the rows is what O is multiplied
  // by.
  __device__ __forceinline__ void finish_rows_of_work() {
    RowFactors lse;
    finish_rows<MmaLayout>(state_, scale_log2_, inverse_, lse, probability_raise<Weight>);
    scales_.take_values(work_);
#pragma unroll
    for (int r = 0; r < Traits::Scores::rows; ++r)
      inverse_[r] = over_kept_share<Config>(inverse_[r], dropout_);
    if constexpr (has_lse_shifts<Config>) {
      add_lse_shift<Config, typename Traits::Output>(descale_, params_.softmax_scale, context(),
                                                     work_.q_begin + warp_row(), lse);
    }
    if constexpr (Config::sinks) key_shares_.add_sink(params_.sequences.sinks[work_.head], inverse_, lse);
    // Read again: batch and head would take registers through the loop.
    if (params_.lse != nullptr) {
      const Work<Config> work = work_ring_.tile();
      const auto find_rows = [&]() -> LseRows {
        return {lse_rows<Config>(params_, work), query_count<Config>(params_, work)};
      };
      write_lse<typename Traits::Output>(find_rows, work.q_begin + warp_row(), lse);
    }
    work_ring_.release();
  }

  // Writes the output, or hands it over to the storer.
  __device__ __forceinline__ void finish_work(const KeptWork& work) {
    if constexpr (Config::separate_o) o_ring().wait_empty();
    sums_.finish(output_);
    output_.scale_rows(inverse_);
    scales_.scale_output(output_);
    const typename Traits::Columns columns(descale_, scales_.value_slice(), params_.heads_kv, key_shares_);
    write_output<Config>(params_, work, consumer_, output_, columns, inverse_, o_ring().tile());
    if constexpr (Config::direct_o) return;
    o_ring().arrive_full();
    rings_.o.advance();
  }

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const DescaleParams& descale_;
  const unsigned smem_;
  const int consumer_;
  Scales scales_;  // of the work tile whose scores are computed, and of values of the one that is done
  ExponentScale scale_log2_;
  WorkRing<Config> work_ring_;
  Rings<Config> rings_;
  const WarpgroupTurns<Traits> turns_;
  Queries<Traits> q_;
  RowFactors query_factors_;  // what makes products with them those with q
  Probabilities<Traits> p_;
  KeptWork work_{};  // whose scores are computed
  Score score_{
      BlockContext{0, 0, params_.heads_q, 0, 0, 0, params_.tensors}};  // built again for each work tile
  int flags_ = 0;                       // of the last tile of keys that was taken
  int next_flags_ = key_flags_unknown;  // of the next one, where it was seen to be there
  int skipped_ = 0;                     // tiles of values that are to be released
  typename Traits::Scores scores_;
  KeptScoresOf<Config, QueriesByKeys, typename Traits::Scores> kept_;  // of them
  typename Traits::Output output_;
  PromotedSums<Config, typename Traits::Output> sums_;
  SoftmaxState<Traits::Scores::rows> state_;
  RowFactors limits_;  // of scores, where P is packed early
  RowFactors inverse_;
  SeenShares<Config, Traits::Scores::rows> key_shares_;  // of the rows that inverse_ is of
};

}  // namespace jit::forward_wgmma
