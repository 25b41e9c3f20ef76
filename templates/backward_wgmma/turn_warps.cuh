// Turn passers: warps that signal finished additions of a dQ consumer, so that it need not wait (backward/turns.cuh).
#pragma once

#include "backward/turn_waiter.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "ptx/atomic.cuh"

namespace jit::backward_wgmma {

/// The value in place of a tile of queries when no addition follows.
inline constexpr int no_addition = -1;

/// Signals the additions of a dQ consumer once they are visible. By one warp per stage, each of which handles every
/// stages_turns-th step: it takes about a step until an addition is visible.
template <class Config>
JIT_DEVICE void pass_turns(const Turns& turns, unsigned own_stage, unsigned smem) {
  const Pipelines<Config> pipelines(smem);
#pragma unroll 1
  for (unsigned step = own_stage;; step += stages_turns) {
    pipelines.added.consumer_wait(step);
    const int tile = load_shared_by_warp(pipelines.added.tile(step));
    if (tile == no_addition) return;
    if (lane_id() == 0) add_one_release(turns.additions + tile);  // mutate: TurnsAreNotPassedOn
    pipelines.added.consumer_release(step);
  }
}

/// Passes on that a tile of queries of the call has been added to, or that no addition follows. By each warp of a dQ
/// consumer.
template <class Config>
JIT_DEVICE void hand_over_addition(const Pipelines<Config>& pipelines, unsigned step, int tile) {
  pipelines.added.producer_acquire(step);
  if (threadIdx.x % warpgroup_size == 0) store_shared(pipelines.added.tile(step), tile);
  pipelines.added.producer_commit(step);
}

}  // namespace jit::backward_wgmma
