// Programmatic dependent launch: how a grid waits for the grids before it on the stream and lets the next one start.
//
// From sm_90 on a grid may start before the one before it has ended. Older GPUs lack the instructions, and need none.
//
// Some grids of one call run concurrently though they follow one another on the stream. The first waits for the grids before
// the call. Each lets the next one start as soon as its blocks have begun. The grids behind the first read without a wait:
// their inputs were there when the first began, and a grid that reads another's output waits for it by a flag of its own. Each
// grid ends after the one before it, so a wait for the last grid is a wait for all ("griddepcontrol" of the PTX ISA: a wait is
// for all grids before, and the next grid starts when all blocks have let it, so blocks that are waited for are resident).
#pragma once

#include "base/prelude.cuh"
#include "ptx/atomic.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit {

/// Before anything is read or written.
JIT_DEVICE void wait_for_grids_before() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_wait();
#endif
}

/// When everything is written. What starts then and depends on it waits for the end of this grid, as above.
JIT_DEVICE void let_next_grid_start() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_launch_dependents();
#endif
}

/// Before anything is read, by a grid side by side with others that is not the first. The grids in front of the call
/// have ended; what a multiprocessor may still hold of the time before is read anew.
JIT_DEVICE void start_beside_grids_before() { fence_acq_rel_gpu(); }

/// When a block has nothing left to do, by one of its warps: the last block to begin keeps the grid from ending first.
JIT_DEVICE void end_behind_grids_before() {
#if __CUDA_ARCH__ >= 900
  if (blockIdx.x == gridDim.x - 1) griddepcontrol_wait();  // mutate: EndsBeforeGridsInFront
#endif
}

}  // namespace jit
