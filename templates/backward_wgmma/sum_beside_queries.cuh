// The schedule of consumers that have rows of 64 keys each, beside one that has dQ (query_consumer.cuh). Products of the
// next step are started as soon as there are registers for them, and the fence behind dS comes when they are. Exponentials
// of the two consumers take turns, so that each computes while the other one's products run:
//
//     tensor cores   │ dV(n)                   │ S(n+1)  dK(n)  dP(n+1)                            │
//     consumer       │ wait dP │ dS(n)         │ fence behind dS │ wait S, its turn │ exp(n+1)     │
#pragma once

#include "backward_wgmma/last_step.cuh"

namespace jit::backward_wgmma {

/// Consumer 0 comes first: in front of its first step consumer 1 lets it.
template <class Config>
__device__ __forceinline__ void begin_turns(const GradientProducts<Config>& tile) {
  if (tile.consumer == 1) bar_arrive(KernelTraits<Config>::turn_barriers, 2 * warpgroup_size);
}
template <class Config>
__device__ __forceinline__ void exponentiate_in_turn(GradientProducts<Config>& tile, unsigned step) {
  constexpr int barriers = KernelTraits<Config>::turn_barriers;
  bar_sync(barriers + tile.consumer, 2 * warpgroup_size);
  tile.exponentiate(step);
  bar_arrive(barriers + 1 - tile.consumer, 2 * warpgroup_size);
}

/// As sum_rows.
template <class Config, class LeaveDv>
__device__ __forceinline__ unsigned sum_beside_queries(GradientProducts<Config>& tile, unsigned step,
                                                       const LeaveDv& leave_dv) {
  if (step == 0) begin_turns(tile);
  tile.load_keys();
  tile.start_scores(step);
  tile.draw(step);
  tile.start_d_scores(step);
  wgmma_wait_group<1>();  // S
  exponentiate_in_turn(tile, step);
  tile.pack_probabilities(step);
  while (true) {
    tile.start_dv(step);
    wgmma_wait_group<1>();                     // dP  // mutate: DpIsNotWaitedFor
    tile.pipelines.ds.producer_acquire(step);  // mutate: NoWaitForThePlaceOfDs
    tile.put_ds(step);
    if (tile.is_last()) break;
    tile.take_queries(step + 1);
    tile.start_scores(step + 1);
    tile.draw(step + 1);
    tile.start_dk(step);
    tile.start_d_scores(step + 1);
    tile.pass_ds(step);
    wgmma_wait_group<2>();  // dV, S  // mutate: ScoresBesideQueriesAreNotWaitedFor
    wgmma_hold(tile.p);
    exponentiate_in_turn(tile, step + 1);
    wgmma_wait_group<1>();  // dK  // mutate: DkIsNotWaitedFor
    wgmma_hold(tile.ds);
    tile.pipelines.q.consumer_release(step);
    tile.pack_probabilities(step + 1);
    step = uniform(step + 1);
  }
  tile.pipelines.arrive_values_empty(tile.keys.round);
  tile.start_dk(step);
  tile.pass_ds(step);
  finish_dv<1>(tile, leave_dv);
  finish_dk(tile, step);
  return uniform(step + 1);
}

}  // namespace jit::backward_wgmma
