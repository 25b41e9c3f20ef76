// The schedule of consumers that have rows of 64 keys each and 64 of 128 queries of dQ. Each product's accumulators lie
// where those of another one lay, so that S and dP of the next step are what runs under the exponentials and the leaving
// of dQ:
//
//     tensor cores   │ dP(n)   dV(n)     │ dK(n)  dQ(n)           S(n+1)             dP(n+1)         │
//     consumer       │ wait dP │ dS(n)   │ wait dK │ wait dQ, leave dQ(n) │ wait S │ exp(n+1)        │
#pragma once

#include "backward_wgmma/last_step.cuh"

namespace jit::backward_wgmma {

/// As sum_rows.
template <class Config, class LeaveDv>
__device__ __forceinline__ unsigned sum_many_queries(GradientProducts<Config>& tile, unsigned step,
                                                     const LeaveDv& leave_dv) {
  tile.draw(step);
  tile.start_scores(step);
  tile.start_d_scores(step);
  wgmma_wait_group<1>();  // S
  tile.exponentiate(step);
  tile.pack_probabilities(step);
  while (true) {
    tile.start_dv(step);
    wgmma_wait_group<1>();  // dP  // mutate: DpOfManyQueriesIsNotWaitedFor
    tile.put_ds(step);
    tile.pass_ds(step);
    if (tile.is_last()) break;
    tile.start_dk(step);  // mutate: QueriesAreLetGoTooEarly
    tile.start_dq(step);
    wgmma_wait_group<1>();  // dV and dK  // mutate: DsIsOverwritten
    wgmma_hold(tile.p);
    wgmma_hold(tile.ds);
    tile.pipelines.q.consumer_release(step);
    tile.take_queries(step + 1);
    tile.draw(step + 1);
    tile.start_scores(step + 1);
    wgmma_wait_group<1>();  // dQ  // mutate: DqOfManyQueriesIsNotWaitedFor
    tile.put_dq(step);
    tile.start_d_scores(step + 1);
    tile.pass_dq(step);
    wgmma_wait_group<1>();  // S  // mutate: TheNextScoresAreNotWaitedFor
    tile.exponentiate(step + 1);
    tile.pack_probabilities(step + 1);
    step = uniform(step + 1);
  }
  return finish_with_dq(tile, step, leave_dv);
}

}  // namespace jit::backward_wgmma
