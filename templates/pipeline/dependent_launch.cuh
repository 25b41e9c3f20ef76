// Programmatic dependent launch: how a grid waits for the grids before it on the stream and lets the next one start.
//
// From sm_90 on, a grid may start before its predecessor has ended. Older GPUs lack the instructions.
//
// Some grids of one call run concurrently, although the stream orders them. The first one waits for the grids before
// the call. Each grid lets the next one start as soon as its blocks have begun. Later grids read their inputs without a
// wait, since these were complete when the first grid began; a grid that reads another one's output waits for a flag.
// Each grid ends after its predecessor, so a wait for the last one is a wait for all (PTX ISA, "griddepcontrol": a wait
// covers all previous grids; the next grid starts when all blocks have triggered it, so these are resident).
#pragma once

#include "base/prelude.cuh"
#include "ptx/atomic.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit {

/// Waits until all previous grids have ended and their writes are visible. Called before any access.
JIT_DEVICE void wait_on_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_wait();
#endif
}

/// Lets the next grid start. Called after the last write; the next grid still waits for the end of this one.
JIT_DEVICE void launch_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_launch_dependents();
#endif
}

/// Begins a grid that runs concurrently with its predecessors and is not the call's first one. The grids before the
/// call have ended; the fence discards what the SM cached before that.
JIT_DEVICE void begin_concurrent_grid() { fence_acq_rel_gpu(); }

/// Keeps the grid from ending before its predecessors: the last block waits for them. By one warp without work.
JIT_DEVICE void end_concurrent_grid() {
#if __CUDA_ARCH__ >= 900
  if (blockIdx.x == gridDim.x - 1) griddepcontrol_wait();  // mutate: EndsBeforeGridsInFront
#endif
}

}  // namespace jit
