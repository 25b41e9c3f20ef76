// The ends of a kernel that may overlap with its neighbours on the stream: on sm_90 and later, where a grid may start
// before the one in front of it has ended. Elsewhere nothing is to be done, and there are no such instructions.
#pragma once

#include "ptx/griddepcontrol.cuh"

namespace jit {

/// Before anything is read or written.
__device__ __forceinline__ void wait_for_grids_before() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_wait();
#endif
}

/// When everything is written. What starts then and depends on it waits for the end of this grid, as above.
__device__ __forceinline__ void let_next_grid_start() {
#if __CUDA_ARCH__ >= 900
  griddepcontrol_launch_dependents();
#endif
}

}  // namespace jit
