// The consumer of a one-pass kernel with roles that owns scores and dV, of all 64 keys of the block:
//
//     Sᵀ = K Qᵀ ─ P = exp(f(S) − LSE) ┬─ W = P ∘ f′ to the consumer of dK
//                                     └─ dV += Pᵀ dO
//
//     tensor cores   │ S(n+1)    dV(n)             │
//     consumer       │ wait S  │ P, W(n+1)         │ wait dV, round P
//
// The scores of a step are multiplied before dV of the step before: exponentials run under that. Until dV has read the
// rounded P of its own step, P stays where S was.
#pragma once

#include "backward_wgmma/score_parts.cuh"
#include "problem/gradients.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"
#include "steps/store_rows.cuh"

namespace jit::backward_wgmma {

template <class Config>
class ValueConsumer {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::KTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;

 public:
  __device__ __forceinline__ ValueConsumer(const AttentionParams& params, const DropoutParams& dropout,
                                           const KeyTile<Config>& keys, unsigned smem)
      : params_(params),
        dropout_(dropout),
        keys_(keys),
        exponent_(score_exponent<Score>(params.softmax_scale)),
        pipelines_(smem) {}

  /// As a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(const GradientParams& gradient_params, bool has_queries,
                                          unsigned step) {
    dv_.clear();
    if (has_queries) step = sum_gradient(step);
    pipelines_.keys.consumer_release(keys_.round);
    const SequencesOf<Config> sequences = keys_.sequences(params_);
    store_rows<Config::head_dim_v>(
        dv_, over_keep_probability<Config>(1.0f, dropout_),
        Gradients<Config>(params_, gradient_params, sequences).dv_rows(keys_.batch, keys_.kv_head),
        keys_.k_begin + warp_row(), sequences.kv(keys_.batch).length);
    return step;
  }

 private:
  // Waits count the groups that they leave running.
  __device__ __forceinline__ unsigned sum_gradient(unsigned step) {
    take_queries(step);
    start_scores(step);
    wgmma_wait_group<0>();
    exponentiate(step);
    pipelines_.q.consumer_release(step);
    pack_probabilities();
    while ((flags_ & query_info_end) == 0) {
      // With one buffer of dO its next tile waits for dV; with two, exponentials run under that.
      constexpr bool has_d_o_ahead = Traits::stages_do > 1;
      if constexpr (!has_d_o_ahead) start_dv(step);
      take_queries(step + 1);
      start_scores(step + 1);
      if constexpr (has_d_o_ahead) {
        start_dv(step);
        wgmma_wait_group<1>();  // dV  // mutate: ScoresOfRolesAreNotWaitedFor
        exponentiate(step + 1);
        finish_dv<0>(step);  // mutate: PIsRoundedWhileDvReadsIt
      } else {
        finish_dv<1>(step);  // S  // mutate: DoIsLetGoWhileDvReadsIt
        wgmma_wait_group<0>();
        exponentiate(step + 1);
      }
      pipelines_.q.consumer_release(step + 1);
      pack_probabilities();
      step = uniform(step + 1);
    }
    start_dv(step);
    finish_dv<0>(step);  // mutate: DvIsNotWaitedFor
    wgmma_hold(dv_.registers[0]);
    return uniform(step + 1);
  }

  __device__ __forceinline__ void take_queries(unsigned step) {
    pipelines_.q.consumer_wait(step);  // mutate: ScoresDoNotWaitForQueries
    flags_ = load_query_info_flags(pipelines_.info(step));
  }

  __device__ __forceinline__ void start_scores(unsigned step) {
    lse_log2_.load(pipelines_.lse_log2(step));
    wgmma_fence();
    Config::template wgmma_scores<KTile, QTile>(
        scores_.registers[0], lower_word(KTile::along_columns(pipelines_.k(keys_.round), 0, 0)),
        lower_word(QTile::along_columns(pipelines_.q.tile(step), 0, 0)));
    wgmma_commit_group();
    kept_ = draw_kept_scores<Config>(pipelines_, step, params_, dropout_, keys_, warp_row());
  }
  __device__ __forceinline__ void start_dv(unsigned step) {
    pipelines_.d_o.consumer_wait(step);  // mutate: DvDoesNotWaitForDo
    wgmma_fence();
    Config::template wgmma_dv<DoTile>(dv_.registers[0], p_,
                                      lower_word(DoTile::along_rows(pipelines_.d_o.tile(step), 0)));
    wgmma_commit_group();
  }

  // Leaves so many groups running.
  template <int running>
  __device__ __forceinline__ void finish_dv(unsigned step) {
    wgmma_wait_group<running>();
    wgmma_hold(p_);
    pipelines_.d_o.consumer_release(step);
  }

  // P in place of S, and W to the other consumer.
  __device__ __forceinline__ void exponentiate(unsigned step) {
    wgmma_hold(scores_.registers[0]);
    pipelines_.w.producer_acquire(step);  // mutate: NoWaitForThePlaceOfW
    if constexpr (has_row_range<TileMask<Config>>) {
      if (is_partial()) {
        exponentiate_tile<true>(step);
      } else {
        exponentiate_tile<false>(step);
      }
    } else {  // a branch for each part: ptxas has no registers for what masks ask about several
#pragma unroll
      for (int i = 0; i < Traits::query_steps; ++i) {
        if (is_partial()) {
          exponentiate_step<true>(i, place<true>(step));
        } else {
          exponentiate_step<false>(i, place<false>(step));
        }
      }
    }
    pipelines_.w.producer_commit(step);
  }
  // mutate: PartialTilesOfRolesTakenForFull
  __device__ __forceinline__ bool is_partial() const { return (flags_ & query_info_partial) != 0; }
  template <bool has_masked>
  __device__ __forceinline__ void exponentiate_tile(unsigned step) {
    const ScorePlace first = place<has_masked>(step);
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) exponentiate_step<has_masked>(i, first);
  }
  // Where the scores lie, if it matters.
  template <bool has_masked>
  __device__ __forceinline__ ScorePlace place(unsigned step) const {
    constexpr bool has_places = has_masked || !Score::is_identity;
    const unsigned info = pipelines_.info(step);
    return {.first_key = keys_.k_begin,
            .first_query = has_places ? load_query_info_query(info) : 0,
            .head = has_places ? load_query_info_head(info) : 0};
  }
  template <bool has_masked>
  __device__ __forceinline__ void exponentiate_step(int i, const ScorePlace& place) {
    using Part = ScorePart<Config>;
    const unsigned w = own_w<Config>(pipelines_);
    Part scores, weights;
    for_each_value<Part>([&](int n, int j) {
      scores.registers[0][n][j] = scores_.registers[0][i * Part::column_blocks + n][j];
    });
    exponentiate_part<Config, has_masked>(scores, weights, i, place, params_, keys_, exponent_,
                                          lse_log2_.step(i));
    lse_log2_.load_behind(i);
    for_each_value<Part>([&](int n, int j) {
      scores_.registers[0][i * Part::column_blocks + n][j] = scores.registers[0][n][j];
    });
    multiply_by_probabilities<Score>(weights, scores);
#pragma unroll
    for (int n = 0; n < Part::column_blocks; ++n)
      // mutate: WWithoutItsPlaces
      store_shared(w + (i * Part::column_blocks + n) * w_block_bytes, weights.registers[0][n]);
  }
  __device__ __forceinline__ void pack_probabilities() {
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) {
      scores_.template pack_step<Element>(p_[i], 0, i);
      kept_.drop_step(p_[i], 0, i);
    }
  }

  static __device__ __forceinline__ int warp_row() { return threadIdx.x % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const KeyTile<Config> keys_;
  const float exponent_;
  const Pipelines<Config> pipelines_;
  int flags_ = 0;                                                // of the last tile of queries that was taken
  TileNumbers<Config, statistic_steps_ahead<Config>> lse_log2_;  // of the same
  Scores scores_;                                                // S, then P
  KeptOf<Config, KeysByQueries, Scores> kept_;
  unsigned p_[Traits::query_steps][4];
  typename Traits::ValueGradient dv_;
};

}  // namespace jit::backward_wgmma
