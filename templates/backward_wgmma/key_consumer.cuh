// The consumer of a one-pass kernel with roles that owns gradients of scores and dK, of all 64 keys of the block:
//
//     dPᵀ = V dOᵀ − delta ─ dS = W ∘ dP ┬─ to the consumer of dQ
//                                       └─ dK += dSᵀ Q
//
//     tensor cores   │ dK(n)                   dP(n+1) │
//     consumer       │ dS(n) to shared memory  wait dP │ wait W, dS(n+1)
#pragma once

#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/score_parts.cuh"
#include "problem/gradients.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"
#include "steps/store_rows.cuh"

namespace jit::backward_wgmma {

template <class Config>
class KeyConsumer {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Scores = typename Traits::Scores;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;

 public:
  __device__ __forceinline__ KeyConsumer(const AttentionParams& params, const DropoutParams& dropout,
                                         const KeyTile<Config>& keys, unsigned smem)
      : params_(params), dropout_(dropout), keys_(keys), pipelines_(smem) {}

  /// As a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(const GradientParams& gradient_params, bool has_queries,
                                          unsigned step) {
    dk_.clear();
    if (has_queries) {
      step = sum_gradient(step);
    } else {
      pipelines_.arrive_values_empty(keys_.round);
    }
    pipelines_.keys.consumer_release(keys_.round);
    const SequencesOf<Config> sequences = keys_.sequences(params_);
    store_rows<Config::head_dim>(
        dk_, over_keep_probability<Config>(params_.softmax_scale, dropout_),
        Gradients<Config>(params_, gradient_params, sequences).dk_rows(keys_.batch, keys_.kv_head),
        keys_.k_begin + warp_row(), sequences.kv(keys_.batch).length);
    return step;
  }

 private:
  // Waits count the groups that they leave running.
  __device__ __forceinline__ unsigned sum_gradient(unsigned step) {
    take_queries(step);
    start_d_scores(step);
    wgmma_wait_group<0>();
    while (true) {
      weigh_d_scores(step);
      start_dk(step);
      write_ds(step);
      if ((flags_ & query_info_end) != 0) {
        pipelines_.arrive_values_empty(keys_.round);
        break;
      }
      // With one buffer dO of the next step comes late, and Q behind the next one would wait for it.
      constexpr bool has_d_o_ahead = Traits::stages_do > 1;
      if constexpr (!has_d_o_ahead) finish_dk<0>(step);
      take_queries(step + 1);
      start_d_scores(step + 1);
      if constexpr (has_d_o_ahead) finish_dk<1>(step);
      wgmma_wait_group<0>();  // mutate: DScoresAreNotWaitedFor
      step = uniform(step + 1);
    }
    wgmma_wait_group<0>();
    wgmma_hold(ds_);
    wgmma_hold(dk_.registers[0]);
    pipelines_.q.consumer_release(step);
    return uniform(step + 1);
  }

  // Leaves so many groups running.
  template <int running>
  __device__ __forceinline__ void finish_dk(unsigned step) {
    wgmma_wait_group<running>();  // mutate: QueriesAreLetGoWhileDkReadsThem
    wgmma_hold(ds_);
    pipelines_.q.consumer_release(step);
  }

  __device__ __forceinline__ void take_queries(unsigned step) {
    pipelines_.q.consumer_wait(step);  // mutate: DkDoesNotWaitForQueries
    flags_ = load_query_info_flags(pipelines_.info(step));
  }

  __device__ __forceinline__ void start_d_scores(unsigned step) {
    pipelines_.d_o.consumer_wait(step);  // mutate: DScoresDoNotWaitForDo
    minus_delta_.load(pipelines_.delta(step));
    wgmma_fence();
    Config::template wgmma_d_scores<VTile, DoTile>(
        d_scores_.registers[0], lower_word(VTile::along_columns(pipelines_.v(keys_.round), 0, 0)),
        lower_word(DoTile::along_columns(pipelines_.d_o.tile(step), 0, 0)));
    wgmma_commit_group();
    kept_ = draw_kept_scores<Config>(pipelines_, step, params_, dropout_, keys_, warp_row());
  }
  __device__ __forceinline__ void start_dk(unsigned step) {
    wgmma_fence();
    Config::template wgmma_dk<QTile>(dk_.registers[0], ds_,
                                     lower_word(QTile::along_rows(pipelines_.q.tile(step), 0)));
    wgmma_commit_group();
  }

  // dP becomes dS, rounded.
  __device__ __forceinline__ void weigh_d_scores(unsigned step) {
    wgmma_hold(d_scores_.registers[0]);
    drop(d_scores_, kept_);
    pipelines_.w.consumer_wait(step);  // mutate: NoWaitForW
    const unsigned w = own_w<Config>(pipelines_);
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) {
      const StepNumbers minus_delta = minus_delta_.step(i);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float weights[MmaLayout::block_values];
        load_shared(weights, w + (2 * i + n) * w_block_bytes);
#pragma unroll
        for (int j = 0; j < MmaLayout::block_values; ++j) {
          float& ds = d_scores_.registers[0][2 * i + n][j];
          ds = weights[j] * (ds + minus_delta.at(n).of(0, j % 2));
        }
      }
      minus_delta_.load_behind(i);
      d_scores_.template pack_step<Element>(ds_[i], 0, i);
    }
    pipelines_.w.consumer_release(step);
    pipelines_.d_o.consumer_release(step);
  }
  __device__ __forceinline__ void write_ds(unsigned step) {
    pipelines_.ds.producer_acquire(step);  // mutate: NoWaitForThePlaceOfDsOfRoles
    store_ds<Config>(pipelines_.ds.tile(step) + own_ds_panel * Traits::DsTile::panel_bytes, ds_);
    fence_proxy_async_shared();  // mutate: NoFenceBehindDsOfRoles
    if constexpr (Config::pair) {
      send_ds(pipelines_, step);
    } else {
      pipelines_.ds.producer_commit(step);
    }
  }

  static __device__ __forceinline__ int warp_row() { return threadIdx.x % warpgroup_size / warp_size * 16; }

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const KeyTile<Config> keys_;
  const Pipelines<Config> pipelines_;
  int flags_ = 0;  // of the last tile of queries that was taken
  TileNumbers<Config, statistic_steps_ahead<Config>> minus_delta_;  // of the queries of dP
  Scores d_scores_;                                                 // dP, then dS
  KeptOf<Config, KeysByQueries, Scores> kept_;
  unsigned ds_[Traits::query_steps][4];
  typename Traits::KeyGradient dk_;
};

}  // namespace jit::backward_wgmma
