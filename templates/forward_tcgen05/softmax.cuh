// A warpgroup of softmax: S of its query tile from tensor memory, mask, softmax, and P back to tensor memory, tile of keys
// after tile of keys. A thread has a row, so that nothing is reduced across lanes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/lse.cuh"
#include "forward_tcgen05/row_factors.cuh"
#include "forward_tcgen05/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "problem/functor.cuh"
#include "ptx/float_pair.cuh"
#include "ptx/fp8.cuh"
#include "ptx/tcgen05.cuh"
#include "scheduling/tile_sequences.cuh"
#include "scheduling/work_pipeline.cuh"
#include "steps/apply_functors.cuh"
#include "steps/dequant.cuh"
#include "steps/dropout.cuh"
#include "steps/polynomial_exp2.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_tcgen05 {

template <class Config>
class SoftmaxWarpgroup {
  using Traits = KernelTraits<Config>;
  using Weight = typename Traits::Weight;
  using Score = typename Config::Score;
  using Mask = TileMask<Config>;
  using Scores = typename Traits::Scores;
  // Scales of queries are factors of exponents, unless a functor wants to see whole scores.
  static constexpr bool scales_exponents = has_token_scales<Config> && Score::is_identity;
  using Scales = Dequant<Config, Scores, scales_exponents ? ScoreScales::tokens : score_scales<Config>>;
  // Scores that the functor bounds have no large maxima.
  using State = typename ChosenType<!(largest_score<Score> * log2_e < largest_offset),
                                    SoftmaxState<Scores::rows>, BoundedSoftmaxState<Scores::rows>>::type;
  static constexpr MaskQuery query = has_row_range<Mask>  ? MaskQuery::shortest
                                     : reads_blocks<Mask> ? MaskQuery::sixteen_keys
                                                          : MaskQuery::each_score;

 public:
  /// `tile` is that of the queries.
  JIT_DEVICE SoftmaxWarpgroup(const AttentionParams& params, unsigned smem, unsigned tmem, int tile)
      : params_(params),
        scales_(params, params.descale),
        first_row_(first_row_of_tile<Config>(tile) + threadIdx.x % query_rows / warp_size * warp_size),
        scores_at_(own_lanes(tmem + Traits::scores_column(tile))),
        p_at_(own_lanes(tmem + Traits::p_column(tile))),
        work_pipeline_(params, smem),
        smem_(smem),
        infos_(smem),
        tile_(smem, tile),
        factors_(smem, tile) {}

  JIT_DEVICE void run() {
    while (take_work()) {
      State state;
      int flags = 0;
      for (bool is_first = true; (flags & (key_info_end | key_info_none)) == 0; is_first = false) {
        infos_.k.consumer_wait();
        const KeyTileInfo info = infos_.info();
        flags = info.flags;
        const bool is_none = (flags & key_info_none) != 0;
        if (!Traits::has_key_scales || is_none) infos_.release();
        if (!is_none) finish_tile(state, info, is_first);
      }
      finish_rows(state, (flags & key_info_none) != 0);
    }
  }

 private:
  JIT_DEVICE bool take_work() {
    work_ = work_pipeline_.take();
    if (!is_work(work_)) return false;
    scales_.take_scores(work_, first_row_, [&] { return context_of<Config>(params_, work_); });
    if constexpr (scales_exponents) {
      scale_log2_ = scales_.exponents().of_rows[0];
    } else {
      scale_log2_ = exponent_scale<Score>(scales_.of_scores());
    }
    return true;
  }

  // S of a tile of keys becomes P.
  JIT_DEVICE void finish_tile(State& state, const KeyTileInfo& info, bool is_first) {
    // Drawn while scores come.
    const auto kept = kept_scores<QueriesByKeys, Scores>(
        dropout_head<Config>(params_.dropout, params_.heads_q, work_.batch, work_.head, params_.tensors),
        work_.q_begin + first_row_, info.k_begin);
    Scores scores;
    const unsigned place = Traits::scores_column(tile_.scores.stage());
    wait_for<Traits>(tile_.scores);  // mutate: ScoresReadBeforeTheyAreThere
    load(scores, scores_at_ + place);
    if constexpr (Traits::has_key_scales) scale(scores);
    apply(scores, info);
    float correction[Scores::rows] = {1};
    const bool moves = update_maximum<Rescale::lazy, Weight>(scores, state, scale_log2_, correction);
    // Before the first tile maxima are −inf, and there is no O.
    factors_.put(moves && !is_first ? factors_rescale : 0, correction[0]);  // mutate: RescaleOfRowsNotTold
    exponentiate(scores, state, kept, p_at_ + place);
  }

  // Makes scores of products with the tile's keys, whose scales lie beside its info.
  JIT_DEVICE void scale(Scores& scores) {
    const unsigned of_keys = key_scales_of<Traits>(smem_, infos_.k.stage());
    scales_.scale_scores(scores, of_keys);
    infos_.release();  // mutate: ScalesReleasedBeforeTheyAreRead
    if constexpr (has_block_factors<Config> && Score::is_identity) scales_.factors().scale(scores);
  }

  // Leaves the scores as the functors want them, some columns at a time: what functors read of all columns is more than
  // there are registers for.
  JIT_DEVICE void apply(Scores& scores, const KeyTileInfo& info) const {
    constexpr bool is_short = query == MaskQuery::shortest && Score::is_identity;
    constexpr int columns = is_short ? tile_kv : 32;
    using Part = Accumulator<RowLayout, warp_size, columns>;
    const bool is_partial = (info.flags & key_info_partial) != 0;
    if (Score::is_identity && !is_partial) return;
    const BlockContext context = work_pipeline_.context(work_);
    const auto by_parts = [&](auto apply) {
#pragma unroll
      for (int column = 0; column < tile_kv; column += columns) {
        apply(reinterpret_cast<Part&>(scores.registers[0][column / RowLayout::block_columns]),
              ScorePlace{work_.q_begin + first_row_ + lane_id(), info.k_begin + column});
        if constexpr (!is_short) asm volatile("" ::: "memory");  // reads of later columns stay behind
      }
    };
    const Score score(context);
    const Mask mask(context);
    if constexpr (reads_blocks<Mask> && !Score::is_identity) {
      by_parts([&](Part& part, const ScorePlace& place) {
        apply_functors<query>(part, place, score, scales_.of_scores(), NoMask(context), context, false);
      });
      if (is_partial)
        by_parts(
            [&](Part& part, const ScorePlace& place) { drop_masked<query>(part, place, mask, context); });
    } else {
      by_parts([&](Part& part, const ScorePlace& place) {
        apply_functors<query>(part, place, score, scales_.of_scores(), mask, context, is_partial);
      });
    }
  }

  static JIT_DEVICE void load(Scores& scores, unsigned place) {
    constexpr int columns = 16, parts = tile_kv / columns;
    float loaded[parts][columns];
#pragma unroll
    for (int part = 0; part < parts; ++part) tcgen05_load(loaded[part], place + part * columns);
    tcgen05_wait_load();  // mutate: NoWaitForLoads
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      tcgen05_hold(loaded[part]);
#pragma unroll
      for (int i = 0; i < columns; ++i) scores.at(0, (part * columns + i) / 2, i % 2) = loaded[part][i];
    }
  }

  // Exponentials become P, a quarter of the keys at a time, and O += P V begins when three of them are there. Sums are for
  // later: no warp waits for them.
  template <class Kept>
  JIT_DEVICE void exponentiate(Scores& scores, State& state, const Kept& kept, unsigned p_at) {
    constexpr int pairs = Scores::column_blocks / p_quarters, words = Traits::p_words(tile_kv) / p_quarters;
    const FloatPair scale(scale_log2_), offset(probability_raise<Weight> - state.offset[0]);
#pragma unroll
    for (int quarter = 0; quarter < p_quarters; ++quarter) {
      unsigned packed[words];
#pragma unroll
      for (int i = 0; i < pairs; ++i) {
        float &x = scores.at(0, quarter * pairs + i, 0), &y = scores.at(0, quarter * pairs + i, 1);
        multiply_add({x, y}, scale, offset).store(x, y);
        if (is_by_polynomial(quarter, i)) {
          polynomial_exp2(x, y);
        } else {
          x = ex2(x);
          y = ex2(y);
        }
      }
#pragma unroll
      for (int i = 0; i < words; ++i) {
        packed[i] = pack_word(scores, quarter * words + i);
        if constexpr (has_dropout<Config>) packed[i] &= kept.pair_mask(quarter * words + i);
      }
      tcgen05_store(p_at + quarter * words, packed);
      if (quarter == early_quarters - 1) tell_stored(tile_.p);
    }
    tell_stored(tile_.p_end);
    add_up(scores, state);
  }
  // Which pairs of scores: an eighth, of the quarters that are neither the first one nor the last, which products wait
  // for. On sm_103 the special function unit is twice as fast.
  static JIT_DEVICE constexpr bool is_by_polynomial(int quarter, int pair) {
#if __CUDA_ARCH__ == 1000
    constexpr int group = 8, of_group = 2;
    return quarter > 0 && quarter < p_quarters - 1 && pair % group >= group - of_group;
#else
    return false;
#endif
  }
  // Packs the elements of P that lie in one column.
  static JIT_DEVICE unsigned pack_word(const Scores& p, int word) {
    if constexpr (is_fp8<Weight>) {
      return pack_e4m3(p.at(0, 2 * word, 0), p.at(0, 2 * word, 1), p.at(0, 2 * word + 1, 0),
                       p.at(0, 2 * word + 1, 1));
    } else {
      return p.template pack_pair<Weight>(0, word);
    }
  }
  // Says that what was stored is there, and that S was read, too.
  static JIT_DEVICE void tell_stored(typename TileBarriers<Traits>::Scores& pipeline) {
    tcgen05_wait_store();    // mutate: PToldBeforeItIsStored
    tcgen05_fence_before();  // mutate: NoFenceBehindP
    tell<Traits>(pipeline);
  }
  static JIT_DEVICE void add_up(const Scores& scores, State& state) {
    constexpr int chains = 4;
    FloatPair sums[chains] = {FloatPair(0), FloatPair(0), FloatPair(0), FloatPair(0)};
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n)
      sums[n % chains] = add(sums[n % chains], {scores.at(0, n, 0), scores.at(0, n, 1)});
    state.row_sum[0] += add(add(sums[0], sums[1]), add(sums[2], sums[3])).sum();
  }

  // Closes the work tile: writes LSE, and tells the factors of rows that normalize them.
  JIT_DEVICE void finish_rows(const State& state, bool is_none) {
    float inverse[Scores::rows], lse[Scores::rows];
    jit::finish_rows<RowLayout>(state, scale_log2_, inverse, lse, probability_raise<Weight>);
    const typename Traits::Work work = work_pipeline_.tile();
    if constexpr (Config::sinks) add_sink(params_.sequences.sinks[work.head], inverse, lse);
    if (params_.lse != nullptr) {
      write_lse<Scores>(
          [&]() -> LseRows {
            return {lse_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
          },
          work.q_begin + first_row_, lse);
    }
    work_pipeline_.release();
    factors_.put(factors_end | (is_none ? factors_of_none : 0),
                 over_keep_probability<Config>(inverse[0], params_.dropout));
  }

  const AttentionParams& params_;
  Scales scales_;
  float scale_log2_ = 0;
  const int first_row_;              // of the warp, within the work tile
  const unsigned scores_at_, p_at_;  // of the first place
  WorkPipeline<Traits> work_pipeline_;
  const unsigned smem_;
  KeyInfoPipeline<Traits> infos_;
  TileBarriers<Traits> tile_;
  RowFactors<Traits> factors_;
  typename Traits::Work work_{};
};

}  // namespace jit::forward_tcgen05
