// How consumers of rows finish the last step of a tile of keys.
#pragma once

#include "backward_wgmma/products.cuh"

namespace jit::backward_wgmma {

/// The last dV, in front of so many other products.
template <int behind, class Config, class LeaveDv>
__device__ __forceinline__ void finish_dv(GradientProducts<Config>& tile, const LeaveDv& leave_dv) {
  wgmma_wait_group<behind>();  // mutate: DvLeavesUnfinished
  wgmma_hold(tile.p);
  wgmma_hold(tile.dv.registers[0]);
  leave_dv();
}

/// And what is behind it.
template <class Config>
__device__ __forceinline__ void finish_dk(GradientProducts<Config>& tile, unsigned step) {
  wgmma_wait_group<0>();  // mutate: DqIsNotWaitedFor
  wgmma_hold(tile.ds);
  wgmma_hold(tile.dk.registers[0]);
  tile.pipelines.keys.consumer_release(tile.keys.round);
  tile.pipelines.q.consumer_release(step);  // mutate: TheLastQueriesAreKept
}

/// dK and dQ, behind dS, where a consumer has a part of dQ. Returns the step that the next tile of keys begins with.
template <class Config, class LeaveDv>
__device__ __forceinline__ unsigned finish_with_dq(GradientProducts<Config>& tile, unsigned step,
                                                   const LeaveDv& leave_dv) {
  tile.pipelines.arrive_values_empty(tile.keys.round);
  tile.start_dk(step);
  tile.start_dq(step);
  finish_dv<2>(tile, leave_dv);
  finish_dk(tile, step);
  tile.put_dq(step);
  tile.pass_dq(step);
  return uniform(step + 1);
}

}  // namespace jit::backward_wgmma
