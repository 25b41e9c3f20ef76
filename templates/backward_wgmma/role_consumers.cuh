// The dV consumer of a one-pass kernel with roles: it computes scores and dV of all 64 keys of the block:
//
//     Sᵀ = K Qᵀ ─ P = exp(f(S) − LSE) ┬─ W = P ∘ f′ to the consumer of dK
//                                     └─ dV += Pᵀ dO
//
//     tensor cores   │ S(n+1)    dV(n)             │
//     consumer       │ wait S  │ P, W(n+1)         │ wait dV, round P
//
// S of a step is issued before dV of the previous step, so that exponentials overlap with dV. P stays in the registers
// of S until dV has read the previous rounded P.
#pragma once

#include "backward/gradient_writer.cuh"
#include "backward_wgmma/products.cuh"

namespace jit::backward_wgmma {

template <class Config, class Maps>
class ValueConsumer {
  using Traits = KernelTraits<Config>;

 public:
  JIT_DEVICE ValueConsumer(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                           const DropoutParams& dropout, const KeyTile<Config>& keys, unsigned smem)
      : tile_(params, dropout, keys, 0, smem), writer_(params, gradients, maps, dropout, smem, keys.round) {}

  /// As a function of for_each_key_tile.
  JIT_DEVICE unsigned run(bool has_queries, unsigned step) {
    tile_.dv.clear();
    if (has_queries) step = sum_gradient(step);
    tile_.pipelines.keys.consumer_release(tile_.keys.round);
    writer_.write_dv(tile_.keys, tile_.dv);
    return step;
  }
  static JIT_DEVICE void end() {}

 private:
  // Arguments of waits are the groups that may still run.
  JIT_DEVICE unsigned sum_gradient(unsigned step) {
    take_scores(step);
    wgmma_wait_group<0>();
    tile_.exponentiate_and_send(step);
    tile_.pipelines.q.consumer_release(step);
    tile_.pack_probabilities();
    while (!tile_.is_last()) {
      // With one buffer of dO the next tile waits for dV; with two, exponentials overlap with dV.
      constexpr bool has_d_o_ahead = Traits::stages_do > 1;
      if constexpr (!has_d_o_ahead) tile_.start_dv(step);
      take_scores(step + 1);
      if constexpr (has_d_o_ahead) {
        tile_.start_dv(step);
        wgmma_wait_group<1>();  // dV  // mutate: ScoresOfRolesAreNotWaitedFor
        tile_.exponentiate_and_send(step + 1);
        finish_dv<0>(step);  // mutate: PIsRoundedWhileDvReadsIt
      } else {
        finish_dv<1>(step);  // S  // mutate: DoIsLetGoWhileDvReadsIt
        wgmma_wait_group<0>();
        tile_.exponentiate_and_send(step + 1);
      }
      tile_.pipelines.q.consumer_release(step + 1);
      tile_.pack_probabilities();
      step = uniform(step + 1);
    }
    tile_.start_dv(step);
    finish_dv<0>(step);  // mutate: DvIsNotWaitedFor
    wgmma_hold(tile_.dv.registers[0]);
    return uniform(step + 1);
  }

  JIT_DEVICE void take_scores(unsigned step) {
    tile_.take_queries(step);
    tile_.ask_mask(step);
    tile_.start_scores(step);
    tile_.draw(step);
  }
  // Leaves so many groups running.
  template <int running>
  JIT_DEVICE void finish_dv(unsigned step) {
    wgmma_wait_group<running>();
    wgmma_hold(tile_.p);
    tile_.pipelines.d_o.consumer_release(step);
  }

  GradientProducts<Config> tile_;
  const typename WriterOf<Traits, Maps>::type writer_;
};

// The dK consumer of a one-pass kernel with roles: it computes gradients of scores and dK of all 64 keys of the block:
//
//     dPᵀ = V dOᵀ − delta ─ dS = W ∘ dP ┬─ to the consumer of dQ
//                                       └─ dK += dSᵀ Q
//
//     tensor cores   │ dK(n)                   dP(n+1) │
//     consumer       │ dS(n) to shared memory  wait dP │ wait W, dS(n+1)

template <class Config, class Maps>
class KeyConsumer {
  using Traits = KernelTraits<Config>;

 public:
  JIT_DEVICE KeyConsumer(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                         const DropoutParams& dropout, const KeyTile<Config>& keys, unsigned smem)
      : tile_(params, dropout, keys, 0, smem), writer_(params, gradients, maps, dropout, smem, keys.round) {}

  /// As a function of for_each_key_tile.
  JIT_DEVICE unsigned run(bool has_queries, unsigned step) {
    tile_.dk.clear();
    if (has_queries) {
      step = sum_gradient(step);
    } else {
      tile_.pipelines.arrive_values_empty(tile_.keys.round);
    }
    tile_.pipelines.keys.consumer_release(tile_.keys.round);
    writer_.write_dk(tile_.keys, tile_.dk);
    return step;
  }
  static JIT_DEVICE void end() {}

 private:
  // Arguments of waits are the groups that may still run.
  JIT_DEVICE unsigned sum_gradient(unsigned step) {
    take_d_scores(step);
    wgmma_wait_group<0>();
    while (true) {
      tile_.receive_and_weigh(step);
      tile_.pipelines.d_o.consumer_release(step);
      tile_.start_dk(step);
      tile_.pipelines.ds.producer_acquire(step);  // mutate: NoWaitForThePlaceOfDsOfRoles
      store_ds<Config>(tile_.pipelines.ds.tile(step), tile_.ds);
      tile_.pass_ds(step);
      if (tile_.is_last()) break;
      // With one buffer, dO of the next step arrives late, and Q of the step after it would wait for that.
      constexpr bool has_d_o_ahead = Traits::stages_do > 1;
      if constexpr (!has_d_o_ahead) finish_dk<0>(step);
      take_d_scores(step + 1);
      if constexpr (has_d_o_ahead) finish_dk<1>(step);
      wgmma_wait_group<0>();  // mutate: DScoresAreNotWaitedFor
      step = uniform(step + 1);
    }
    tile_.pipelines.arrive_values_empty(tile_.keys.round);
    finish_dk<0>(step);
    wgmma_hold(tile_.dk.registers[0]);
    return uniform(step + 1);
  }

  JIT_DEVICE void take_d_scores(unsigned step) {
    tile_.take_queries(step);
    tile_.start_d_scores(step);
    tile_.draw(step);
  }
  // Leaves so many groups running.
  template <int running>
  JIT_DEVICE void finish_dk(unsigned step) {
    wgmma_wait_group<running>();  // mutate: QueriesAreLetGoWhileDkReadsThem
    wgmma_hold(tile_.ds);
    tile_.pipelines.q.consumer_release(step);
  }

  GradientProducts<Config> tile_;
  const typename WriterOf<Traits, Maps>::type writer_;
};

}  // namespace jit::backward_wgmma
