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

/// Everything that one consumer warpgroup holds.
template <class Config>
class Consumer {
  using Traits = KernelTraits<Config>;
  using RowFactors = float[Traits::Scores::rows];
  using EpilogueWork = typename Traits::EpilogueWork;
  static constexpr bool packs_early = ConsumerScores<Config>::packs_early;
  // Whether queries are released as soon as their last product is there, so that the next ones come under its softmax.
  static constexpr bool releases_early = packs_early;
  static constexpr bool passes_early = ConsumerScores<Config>::passes_early;
  // Whether O is brought up to the maxima of a tile under the S of the next one, in front of P V. A small one is not
  // worth the registers.
  static constexpr bool rescales_late = packs_early && Config::head_dim_v > 64;
  static constexpr float no_correction = -1;  // which no factor is
  static constexpr bool issues_in_order = Config::order == WarpgroupOrder::ping_pong;
  static constexpr bool passes_late = issues_in_order && !passes_early;

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

  // Where a run over work tiles ends: its last one, which is to be written, and whether there is a next one,
  // if it has asked.
  struct Outcome {
    EpilogueWork done;
    bool has_asked;
    bool has_work;
  };

  // Computes work tiles until there is none left, or one without keys comes.
  JIT_DEVICE Outcome run_overlapped() {
    if constexpr (Traits::has_spans) output_.spans().begin(first_span());
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
      while (!keys_.is_last()) {
        const bool begins_span = Traits::has_spans && keys_.ends_span();
        keys_.take();
        if constexpr (Traits::has_spans) {
          if (begins_span) {
            run_on_to_span(keys_.span());
            continue;
          }
        }
        // Only the last tile of a work tile is worth a second copy of P V.
        start_scores_and_output(false, [&] { rescale_output(); });  // mutate: FactorsOfOneTileLost
        finish_scores_and_output();
      }
      const bool lower = keys_.is_lower();
      // mutate: FactorsOfTheLastTileLost
      rescale_output();  // not under the next scores: what is left of the rows takes the registers of the factors
      keys_.skip_k(scores_.order_barrier());
      finish_rows_of_work();
      const EpilogueWork done = queries_.work();
      bool has_work = false;
      if constexpr (Traits::runs_on) {
        // The first scores of the next work tile are computed under the last output of this one.
        has_work = next_work();
        if (has_work && keys_.has_any()) {
          const int span = first_span();
          start_scores_and_output(lower, [] {});
          finish_first_scores_and_output();
          keys_.skip_v();                           // mutate: KeepsSkippedValues
          output_.finish(done, queries_.scales());  // mutate: OutputOfTheNextWorkTile
          output_.clear();
          if constexpr (Traits::has_spans) output_.spans().begin(span);
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

  // The span of the first tile of keys, before it is released.
  JIT_DEVICE int first_span() const {
    if constexpr (Traits::has_spans) return keys_.span();
    return 0;
  }

  // The first scores of a span are computed under the last output of the one before.
  JIT_DEVICE void run_on_to_span(int span) {
    output_.end_scores_of_span(scores_.state(), queries_.scale_log2());
    start_scores_and_output(false, [] {});
    scores_.finish_first_of_span(queries_, keys_);
    finish_output();
    scores_.pack();
    output_.begin_span(span);
  }

  // Waits for a work tile, its queries and its first keys; false when there is none left.
  JIT_DEVICE bool take_work() {
    if (!queries_.take()) return false;
    if constexpr (has_output_functor<Config>) output_.bring_near(queries_.work());
    keys_.take();
    keys_.skip_first_k(scores_.order_barrier());
    return true;
  }

  // Goes on to the next one. All scores of the last one have been computed.
  JIT_DEVICE bool next_work() {
    if constexpr (!releases_early) queries_.release();
    queries_.advance();
    return take_work();
  }

  // Issues S of this tile of keys and, behind it, O += P V of the tile before, of which `lower` leaves out
  // the upper half, and `bring_output`, a function without arguments, before it.
  template <class BringOutput>
  JIT_DEVICE void start_scores_and_output(bool lower, const BringOutput& bring_output) {
    const bool has_values = packs_early && keys_.has_v();
    // Known to be the same for the warp, or descriptors would be made in each lane and moved. The turn covers it.
    const unsigned q_tile = uniform(queries_.tile()), k_tile = uniform(keys_.k_tile()),
                   v_tile = uniform(keys_.v_tile());
    if constexpr (issues_in_order) scores_.order_barrier().wait();
    if constexpr (packs_early) scores_.hold_tile();
    scores_.multiply(queries_, q_tile, k_tile);
    bring_output();
    if (!has_values) keys_.wait_for_v();  // mutate: NoWaitForFullV
    scores_.multiply_values(output_, v_tile, lower);
    // mutate: OrderOfSoftmaxIsNotPassedOn
    if constexpr (issues_in_order && !packs_early) scores_.order_barrier().pass();
    scores_.draw_kept(queries_, keys_);
    scores_.find_limits(queries_);
    wgmma_wait_group<1>();   // mutate: NoWaitForS
    release_last_queries();  // mutate: QueriesReleasedUnderTheProduct
  }

  // After the wait for S: the last product with queries, if it is that of the last tile of keys.
  JIT_DEVICE void release_last_queries() const {
    if constexpr (releases_early) queries_.release_if(keys_.is_last());  // mutate: QueriesReleased
  }

  // After the wait for S of a later tile, under whose P V of the tile before it was: leaves P, and O with the sums that
  // it belongs to.
  JIT_DEVICE void finish_scores_and_output() {
    if constexpr (packs_early) {
      scores_.finish_early(
          queries_, keys_,
          [&] {
            finish_output<passes_late>();  // mutate: PackedBeforeTheProductsEnd
            // mutate: SumsOfOtherTilesLost
            if constexpr (Traits::sums_by_products) output_.add_sums(scores_.sums());
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

  // Brings O up to the maxima of the tile whose P V is next.
  JIT_DEVICE void rescale_output() {
    if constexpr (!rescales_late) return;
    if (!(correction_[0] < 0)) output_.scale_rows(correction_);  // mutate: OutputOfEarlierMaxima
#pragma unroll
    // mutate: OutputRescaledAgain
    for (int r = 0; r < Traits::Output::rows; ++r) correction_[r] = no_correction;
    output_.hold();
  }

  // Finishes the first S of a work tile, and the output.
  JIT_DEVICE void finish_first_scores_and_output() {
    if constexpr (packs_early) {
      scores_.template finish_first_early<true>(queries_, keys_, [&] { finish_last_output<passes_late>(); });
    } else {
      scores_.finish_first(queries_, keys_);
      finish_output();
      scores_.pack();
    }
  }

  // Waits for O and releases V. A turn ends at once behind the wait.
  template <bool passes_order = false>
  JIT_DEVICE void finish_output() {
    wgmma_wait_group<0>();
    if constexpr (passes_order) scores_.order_barrier().pass();  // mutate: OrderKeptBehindTheWait
    output_.hold();
    scores_.hold_p();
    keys_.release_v();  // mutate: ReleasesVBeforeTheWaitForO
    output_.promote();
  }
  // Finishes the output after the last tile of keys of a work tile, whose rows are finished but for its sums.
  template <bool passes_order = false>
  JIT_DEVICE void finish_last_output() {
    finish_output<passes_order>();
    if constexpr (Traits::sums_by_products) output_.add_last_sums();  // mutate: SumsOfTheLastTileLost
  }

  // When all scores of the work tile are done.
  JIT_DEVICE void finish_rows_of_work() {
    output_.finish_rows(scores_.state(), scores_.sums(), queries_);
    queries_.release_work();  // mutate: LseOfTheNextWorkTile
  }

  ConsumerQueries<KernelTraits<Config>> queries_;  // of the work tile whose scores are computed
  ConsumerKeys<Config> keys_;
  ConsumerScores<Config> scores_;
  ConsumerOutput<Config> output_;
  // The factors of O, where it is still to be rescaled. That it is not lies in the same registers: one more
  // would be spilled.
  RowFactors correction_ = {no_correction, no_correction};
};

}  // namespace jit::forward_wgmma
