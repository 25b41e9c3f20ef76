// A consumer of a wgmma kernel: a warpgroup that owns 64 queries of each tile.
//
//     P of 16 bits: S(n) = Q K(n)ᵀ ┐
//                   O += P V(n−1)  ┴─ wait for S(n) ─ mask, softmax ─ wait for O ─ rescale O ─ P(n)
//     P of 8 bits:  S(n) = Q K(n)ᵀ ─ rescale O ┐
//                                O += P V(n−1) ┴─ wait for S(n) ─ mask, maxima ─ wait for O ─ exponentials, P(n)
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/consumer_keys.cuh"
#include "forward_wgmma/consumer_output.cuh"
#include "forward_wgmma/consumer_scores.cuh"
#include "forward_wgmma/traits.cuh"
#include "jit/options.h"
#include "mainloop/consumer_queries.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"

namespace jit::forward_wgmma {

/// The mainloop of one consumer warpgroup, and all its registers.
template <class Config>
class Consumer {
  using Traits = KernelTraits<Config>;
  using RowFactors = float[Traits::Scores::rows];
  using EpilogueWork = typename Traits::EpilogueWork;
  static constexpr bool packs_early = ConsumerScores<Config>::packs_early;
  // Whether Q is released right after its last product, so that the next Q is loaded during the softmax.
  static constexpr bool releases_early = packs_early;
  static constexpr bool passes_early = ConsumerScores<Config>::passes_early;
  // Whether O is rescaled to the maxima of a tile while S of the next tile runs, before P V. For a narrow O this is not
  // worth the registers.
  static constexpr bool rescales_late = packs_early && Config::head_dim_v > 64;
  static constexpr float no_correction = -1;  // not a possible factor
  static constexpr bool issues_in_order = Config::order == WarpgroupOrder::ping_pong;
  static constexpr bool passes_late = issues_in_order && !passes_early;
  // Whether a work tile's O is finished under the second product of the next one, for which the other consumer need not
  // wait: an output functor takes long.
  static constexpr bool finishes_late = has_output_functor<Config> && !packs_early && !Traits::has_spans;
  // Whether L2 is asked for results of spans that wait: three consumers lack the registers.
  static constexpr bool asks_ahead = Traits::has_spans && Traits::consumers < 3;

 public:
  JIT_DEVICE Consumer(const AttentionParams& params, const DropoutParams& dropout,
                      const DescaleParams& descale, const SpanMemory& spans, unsigned smem)
      : Consumer(params, dropout, descale, spans, smem, uniform(threadIdx.x / warpgroup_size - 1)) {}

  JIT_DEVICE void run() {
    bool has_work = take_work();
    while (has_work) {
      output_.clear();
      scores_.begin();
      Outcome outcome{queries_.work(), false, false};
      if (!keys_.has_any()) {
        keys_.release_k();
        if constexpr (releases_early) queries_.release();  // mutate: QueriesWithoutKeysKept
        finish_rows_of_work();
      } else {
        outcome = run_overlapped();
      }
      output_.finish(outcome.done, queries_.scales());
      has_work = outcome.has_asked ? outcome.has_work : next_work();
    }
  }

 private:
  JIT_DEVICE Consumer(const AttentionParams& params, const DropoutParams& dropout,
                      const DescaleParams& descale, const SpanMemory& spans, unsigned smem, int consumer)
      : queries_(params, descale, smem, consumer),
        keys_(smem, consumer),
        scores_(params, dropout, consumer),
        output_(params, dropout, descale, spans, smem, consumer) {}

  // The end of a run over work tiles: the last one, whose O is to be written, and, if the run has already waited for
  // the next work tile (`has_asked`), whether there is one.
  struct Outcome {
    EpilogueWork done;
    bool has_asked;
    bool has_work;
  };

  // Computes work tiles until none is left or the next one has no keys.
  JIT_DEVICE Outcome run_overlapped() {
    if constexpr (Traits::has_spans) output_.spans().begin();
    scores_.multiply(queries_, queries_.tile(), keys_.k_tile());
    scores_.draw_kept(queries_, keys_);
    wgmma_wait_group<0>();  // mutate: ReleasesKBeforeTheWaitForS
    release_last_queries();
    if constexpr (packs_early) {
      scores_.template finish_first_early<false>(queries_, keys_, [] {});
    } else {
      scores_.finish_first(queries_, keys_);
      scores_.pack();
    }
    if constexpr (Config::descending) keys_.skip_v();
    while (true) {
      while (!keys_.ends_span_or_all()) {
        keys_.take();
        // `lower` is false: only the last tile of a work tile is worth a second copy of the code of P V.
        start_scores_and_output(false, [&] { rescale_output(); });  // mutate: FactorsOfOneTileLost
        finish_scores_and_output();
      }
      if constexpr (Traits::has_spans) {
        if (!keys_.is_last()) {
          run_on_to_span();
          continue;
        }
        if constexpr (asks_ahead) output_.spans().ask_ahead(~0u);
      }
      const bool lower = keys_.is_lower();
      // mutate: FactorsOfTheLastTileLost
      rescale_output();  // not under the next scores: what is left of the rows takes the registers of the factors
      keys_.skip_k(scores_.order_barrier());
      finish_rows_of_work();
      const EpilogueWork done = queries_.work();
      bool has_work = false;
      if constexpr (Traits::runs_on) {
        // The first S of the next work tile overlaps with the last P V of this one.
        has_work = next_work();
        if (has_work && keys_.has_any()) {
          start_scores_and_output(lower, [] {});
          finish_first_scores_and_output();
          keys_.skip_v();  // mutate: KeepsSkippedValues
          if constexpr (finishes_late) {
            if (!keys_.ends_span_or_all()) {
              keys_.take();
              start_scores_and_output<true>(false, [&] {
                output_.finish(done, queries_.scales());
                output_.clear();
              });
              finish_scores_and_output();
              continue;
            }
          }
          output_.finish(done, queries_.scales());  // mutate: OutputOfTheNextWorkTile
          output_.clear();
          if constexpr (Traits::has_spans) output_.spans().begin();
          continue;
        }
      }
      keys_.wait_for_v();
      scores_.multiply_values(output_, keys_.v_tile(), lower);
      finish_last_output();
      keys_.skip_v();
      return {done, Traits::runs_on, has_work};
    }
  }

  // Begins the next span: its first S overlaps with the last P V of the span before.
  JIT_DEVICE void run_on_to_span() {
    const int level = keys_.level_of_end();
    if constexpr (asks_ahead) output_.spans().ask_ahead((1u << level) - 1);
    keys_.take();
    output_.end_scores_of_span(scores_.state(), queries_.scale_log2());
    start_scores_and_output(false, [] {});
    scores_.finish_first_of_span(queries_, keys_);
    finish_output();
    scores_.pack();
    output_.begin_span(level);
  }

  // Waits for a work tile, its queries and its first keys; false when there is none left.
  JIT_DEVICE bool take_work() {
    if (!queries_.take()) return false;
    keys_.take();
    keys_.skip_first_k(scores_.order_barrier());
    return true;
  }

  // Goes on to the next work tile. All scores of the last one have been computed.
  JIT_DEVICE bool next_work() {
    if constexpr (!releases_early) queries_.release();
    queries_.advance();
    return take_work();
  }

  // Issues S of this tile of keys, and after it O += P V of the previous tile. Between both, `bring_output()` rescales
  // O, or takes long and `passes_soon`: the turn ends before it. With `lower` P V omits the upper half of the keys.
  template <bool passes_soon = false, class BringOutput>
  JIT_DEVICE void start_scores_and_output(bool lower, const BringOutput& bring_output) {
    const bool has_values = packs_early && keys_.has_v();
    // Uniform values, so that wgmma descriptors are made once per warp. The wait for the turn hides the latency.
    const unsigned q_tile = uniform(queries_.tile()), k_tile = uniform(keys_.k_tile()),
                   v_tile = uniform(keys_.v_tile());
    if constexpr (issues_in_order) scores_.order_barrier().wait();
    if constexpr (packs_early) scores_.hold_tile();
    scores_.multiply(queries_, q_tile, k_tile);
    if constexpr (issues_in_order && passes_soon) scores_.order_barrier().pass();
    bring_output();
    if (!has_values) keys_.wait_for_v();  // mutate: NoWaitForFullV
    scores_.multiply_values(output_, v_tile, lower);
    // mutate: OrderOfSoftmaxIsNotPassedOn
    if constexpr (issues_in_order && !packs_early && !passes_soon) scores_.order_barrier().pass();
    scores_.draw_kept(queries_, keys_);
    scores_.find_limits(queries_);
    wgmma_wait_group<1>();   // mutate: NoWaitForS
    release_last_queries();  // mutate: QueriesReleasedUnderTheProduct
  }

  // Releases Q if S of the last tile of keys has been computed. Called after the wait for S.
  JIT_DEVICE void release_last_queries() const {
    if constexpr (releases_early) queries_.release_if(keys_.is_last());  // mutate: QueriesReleased
  }

  // Finishes S of a tile that is not the first, and P V of the tile before. Called after the wait for S; leaves P of
  // the tile, and O and row sums relative to the same maxima.
  JIT_DEVICE void finish_scores_and_output() {
    if constexpr (packs_early) {
      scores_.finish_early(
          queries_, keys_,
          [&] {
            finish_output<passes_late>();  // mutate: PackedBeforeTheProductsEnd
            // mutate: SumsOfOtherTilesLost
            if constexpr (Traits::sums_by_products) output_.add_sums(scores_.sums(), scores_.product_share());
          },
          [&](const RowFactors& correction) {
            if constexpr (rescales_late) {
#pragma unroll
              for (int r = 0; r < Traits::Output::rows; ++r) correction_[r] = correction[r];
            } else {
              output_.scale_rows(correction);
            }
          });
    } else {
      RowFactors correction;
      const bool move = scores_.finish(queries_, keys_, correction);
      finish_output();
      if (move) output_.scale_rows(correction);  // mutate: NoRescale
      scores_.pack();
    }
  }

  // Rescales O to the maxima of the tile whose P V is next.
  JIT_DEVICE void rescale_output() {
    if constexpr (!rescales_late) return;
    if (!(correction_[0] < 0)) output_.scale_rows(correction_);  // mutate: OutputOfEarlierMaxima
#pragma unroll
    // mutate: OutputRescaledAgain
    for (int r = 0; r < Traits::Output::rows; ++r) correction_[r] = no_correction;
    output_.hold();
  }

  // Finishes the first S of a work tile, and the last P V of the work tile before.
  JIT_DEVICE void finish_first_scores_and_output() {
    if constexpr (packs_early) {
      scores_.template finish_first_early<true>(queries_, keys_, [&] { finish_last_output<passes_late>(); });
    } else {
      scores_.finish_first(queries_, keys_);
      finish_output();
      scores_.pack();
    }
  }

  // Waits for P V and releases V. With `passes_order` the turn is passed right after the wait.
  template <bool passes_order = false>
  JIT_DEVICE void finish_output() {
    wgmma_wait_group<0>();
    if constexpr (passes_order) scores_.order_barrier().pass();  // mutate: OrderKeptBehindTheWait
    output_.hold();
    scores_.hold_p();
    keys_.release_v();  // mutate: ReleasesVBeforeTheWaitForO
    output_.promote();
  }
  // Finishes the last P V of a work tile, and adds the row sums that it has computed.
  template <bool passes_order = false>
  JIT_DEVICE void finish_last_output() {
    finish_output<passes_order>();
    const float share = scores_.product_share();
    if constexpr (Traits::sums_by_products) output_.add_last_sums(share);  // mutate: SumsOfTheLastTileLost
  }

  // Finishes the rows (LSE and the factors of O) once all scores of the work tile have been computed.
  JIT_DEVICE void finish_rows_of_work() {
    output_.stage_numbers(queries_.work());
    output_.finish_rows(scores_.state(), scores_.sums(), queries_);
    queries_.release_work();  // mutate: LseOfTheNextWorkTile
  }

  ConsumerQueries<KernelTraits<Config>> queries_;  // of the work tile whose scores are computed
  ConsumerKeys<Config> keys_;
  ConsumerScores<Config> scores_;
  ConsumerOutput<Config> output_;
  // Factors by which O must still be rescaled, or no_correction: the same registers hold both, since one more would be
  // spilled.
  RowFactors correction_ = {no_correction, no_correction};
};

}  // namespace jit::forward_wgmma
