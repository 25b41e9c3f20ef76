// The common part of the backward families' cost models: the time of a grid of blocks that each go through
// tiles with mma.sync.
#pragma once

#include "generator/kernels/device_limits.h"

namespace jit {

/// The work of one step of one block for the units of its multiprocessor.
struct StepWork {
  double flops = 0;         ///< of mma.sync
  double matrix_bytes = 0;  ///< that ldmatrix reads
  double copy_bytes = 0;    ///< that cp.async writes
  double scores = 0;        ///< that become probabilities and gradients
};

/// The blocks of a launch.
struct BlockGrid {
  double blocks = 1;
  double steps = 1;  ///< of a block
  int warps = 1;     ///< of a block
  int blocks_per_sm = 1;
  int stages = 1;
};

/// Clock cycles until all blocks are done.
double grid_cycles(const DeviceLimits& limits, const StepWork& step, const BlockGrid& grid);

}  // namespace jit
