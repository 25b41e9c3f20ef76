// The work tile whose scores a consumer computes: its queries, and the functors that turn products with them into scores. A
// kernel family provides Traits: its Config, Scores, Work and the part of it that consumers keep, and whether O lies over Q.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "problem/functor.cuh"
#include "problem/scores.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/tile_sequences.cuh"
#include "scheduling/work_pipeline.cuh"
#include "steps/dequant.cuh"
#include "steps/softmax.cuh"
#include "steps/wgmma_products.cuh"

namespace jit {

/// A consumer's place in the list of work tiles and in the pipeline of Q.
template <class Traits>
class ConsumerQueries {
  using Config = typename Traits::Config;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  // Whether the scales of queries are factors of exponents: a functor wants to see whole scores.
  static constexpr bool scales_exponents = has_token_scales<Config> && Score::is_identity;
  // Products with rows that are multiplied as a power of two of what they are have factors: in exponents, where a
  // score is a product.
  static constexpr bool has_query_factors = Queries<Traits>::has_factors && Score::is_identity;

 public:
  using Scales = Dequant<Config, Scores, scales_exponents ? ScoreScales::tokens : score_scales<Config>>;
  using ExponentScale =
      typename ChosenType<scales_exponents || has_query_factors, RowScales<Scores::rows>, float>::type;

  JIT_DEVICE ConsumerQueries(const AttentionParams& params, const DescaleParams& descale, unsigned smem,
                             int consumer)
      : params_(params),
        consumer_(consumer),
        scales_(params, descale),
        scale_log2_(first_scale(params)),
        work_pipeline_(params, smem),
        q_pipeline_(QoPipelines<Traits>(smem).q) {}

  /// Waits for a work tile and its queries; false when there is none left.
  JIT_DEVICE bool take() {
    const typename Traits::Work work = work_pipeline_.take();
    if (!is_work(work)) return false;
    work_ = work;
    scales_.take_scores(work, warp_row(), [&] { return context_of<Config>(params_, work); });
    if constexpr (scales_exponents) {
      scale_log2_ = scales_.exponents();
    } else if constexpr (has_scaled_keys<Config> && !has_query_factors) {
      scale_log2_ = exponent_scale<Score>(scales_.of_scores());
    }
    score_ = Score(context_of<Config>(params_, work));
    pipeline().consumer_wait();
    take_q();
    return true;
  }

  /// Behind the last product with the queries: their place is free, unless O is to lie there.
  JIT_DEVICE void release() const {
    if constexpr (!Traits::o_aliases_q) pipeline().consumer_release();  // mutate: QueriesAreNeverReleased
  }
  /// Releases the place of the queries if the product was the last one (`is_last`), behind the wait for it.
  JIT_DEVICE void release_if(bool is_last) const { pipeline().consumer_release_together_if(is_last); }
  /// Goes on to the next ones.
  JIT_DEVICE void advance() { q_pipeline_.advance(); }

  /// S = Q Kᵀ, as one group, or by one warp at once.
  JIT_DEVICE void multiply(Scores& scores, unsigned q_tile, unsigned k_tile) const {
    q_.multiply_qk(scores, q_tile, k_tile);
  }
  JIT_DEVICE unsigned tile() const { return pipeline().tile(); }
  JIT_DEVICE void multiply_by_warp(Scores& scores, unsigned k_tile) const {
    Queries<Traits>::multiply_qk_by_warp(scores, pipeline().tile(), k_tile);
  }
  /// Makes scores of products with keys whose scales lie at a shared address.
  JIT_DEVICE void scale(Scores& scores, unsigned key_scales) {
    scales_.scale_scores(scores, key_scales);
    if constexpr (Queries<Traits>::has_factors && !has_query_factors) scores.scale_rows(factors_);
  }
  /// The factor that makes exponents of 2 of these.
  JIT_DEVICE const ExponentScale& scale_log2() const { return scale_log2_; }

  JIT_DEVICE const typename Traits::EpilogueWork& work() const { return work_; }
  JIT_DEVICE const Score& score() const { return score_; }
  /// Also those of values, of the work tile that is done.
  JIT_DEVICE Scales& scales() { return scales_; }
  /// The first row of a work tile's that the warp has.
  JIT_DEVICE int warp_row() const {
    return consumer_ * rows_per_warpgroup + threadIdx.x % warpgroup_size / warp_size * 16;
  }
  /// Lengths are read again where they differ: they would take registers through the loop.
  JIT_DEVICE BlockContext context() const { return work_pipeline_.context(work_); }
  /// The whole work tile, read again, until it is released.
  JIT_DEVICE typename Traits::Work whole_work() const { return work_pipeline_.tile(); }
  JIT_DEVICE void release_work() { work_pipeline_.release(); }

 private:
  static JIT_DEVICE ExponentScale first_scale(const AttentionParams& params) {
    if constexpr (scales_exponents || has_query_factors) {
      return {};
    } else {
      return exponent_scale<Score>(params.softmax_scale);
    }
  }

  JIT_DEVICE void take_q() {
    if constexpr (Queries<Traits>::has_factors) {
      Queries<Traits>::convert(pipeline().tile(), Traits::queries_barrier + consumer_, factors_);
      if constexpr (has_query_factors) {
        // Within what does not make 0 of an infinity: below, nothing is left of a product, and above, nothing
        // beside one.
        constexpr float least = 0x1p-100f, most = 0x1p100f;
#pragma unroll
        for (int r = 0; r < Scores::rows; ++r) {
          scale_log2_.of_rows[r] =
              // mutate: QueriesOfFp16WithoutFactors
              fminf(fmaxf(exponent_scale<Score>(scales_.of_scores()) * factors_[r], least), most);
        }
      }
    }
  }

  // Moved at each use: addresses of their own would take registers through the loop.
  JIT_DEVICE auto pipeline() const { return q_pipeline_of<Traits>(q_pipeline_, consumer_); }

  const AttentionParams& params_;
  const int consumer_;
  Scales scales_;
  ExponentScale scale_log2_;
  WorkPipeline<Traits> work_pipeline_;
  decltype(QoPipelines<Traits>::q) q_pipeline_;
  Queries<Traits> q_;
  float factors_[Scores::rows];  // what makes products with them those with q
  typename Traits::EpilogueWork work_{};
  Score score_{
      BlockContext{0, 0, params_.heads_q, 0, 0, 0, params_.tensors}};  // built again for each work tile
};

}  // namespace jit
