// Where a grid meets those in front of it and behind it on the stream.
//
// On sm_90 and later a grid may start before the one in front of it has ended. Elsewhere nothing is to be done, and
// there are no such instructions.
//
// Some grids of one call run side by side, though they follow one another. The first of them waits for the grids in
// front of the call. Each lets the next one start as soon as its blocks have begun, and those behind the first do not
// wait before they read: what they need was there when the first began, and none of them reads what another one has yet
// to write, unless it waits for that by itself. Each ends behind the one in front of it, so that who waits for the last
// of them waits for all ("griddepcontrol" of the PTX ISA: a wait is for all grids in front, and the next grid starts
// when all blocks have let it, so that blocks that are waited for have a place on the GPU).
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
