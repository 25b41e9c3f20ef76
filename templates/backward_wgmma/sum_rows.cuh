// The schedule of consumers that have rows of 64 keys each and a half of the columns of dQ. Products of step n, and how
// they are queued; what stands in line with "wait" goes on meanwhile:
//
//     tensor cores   │ dQ(n−1) │ dP(n)  dV(n)          │ dK(n)   S(n+1)  dQ(n) …
//     consumer       │ P, W(n) │ wait dP ─ dS(n)       │ wait dV, wait S ─ …
//
// Scores come first in the queue wherever they can, because everything waits for them.
#pragma once

#include "backward_wgmma/last_step.cuh"

namespace jit::backward_wgmma {

/// Sums over all tiles of queries from step `step` on, the first of which has been taken. Calls `leave_dv` when dV is
/// done. Returns the step behind the last one. Waits count the groups that they leave running.
template <class Config, class LeaveDv>
__device__ __forceinline__ unsigned sum_rows(GradientProducts<Config>& tile, unsigned step,
                                             const LeaveDv& leave_dv) {
  tile.draw(step);
  tile.start_scores(step);
  wgmma_wait_group<0>();
  tile.exponentiate(step);
  tile.pack_probabilities(step);
  tile.start_d_scores(step);
  while (true) {
    tile.start_dv(step);
    wgmma_wait_group<1>();  // dP
    tile.put_ds(step);
    tile.pass_ds(step);
    if (tile.is_last()) break;
    tile.start_dk(step);
    wgmma_wait_group<1>();  // dV
    wgmma_hold(tile.p);
    tile.take_queries(step + 1);
    tile.draw(step + 1);
    tile.start_scores(step + 1);
    tile.start_dq(step);
    wgmma_wait_group<1>();  // dK and S  // mutate: ScoresAreNotWaitedFor
    tile.exponentiate(step + 1);
    wgmma_hold(tile.ds);
    tile.pipelines.q.consumer_release(step);
    tile.pack_probabilities(step + 1);
    wgmma_wait_group<0>();  // dQ
    tile.put_dq(step);
    tile.start_d_scores(step + 1);
    tile.pass_dq(step);
    step = uniform(step + 1);  // else every descriptor would be moved from registers of its own
  }
  return finish_with_dq(tile, step, leave_dv);
}

}  // namespace jit::backward_wgmma
