// Shared cost model of the backward families by mma.sync: the time of a grid whose blocks iterate over tiles.
#pragma once

#include "generator/kernels/device_limits.h"

namespace jit {

/// The work of one step of a block for each unit of the SM.
struct StepWork {
  double flops = 0;         ///< of mma.sync
  double matrix_bytes = 0;  ///< read by ldmatrix
  double copy_bytes = 0;    ///< written by cp.async
  double scores = 0;        ///< to convert to probabilities and gradients
};

/// The blocks of a launch.
struct BlockGrid {
  double blocks = 1;
  double steps = 1;  ///< per block
  int warps = 1;     ///< per block
  int blocks_per_sm = 1;
  int stages = 1;
};

/// Predicted clock cycles of the whole grid.
double grid_cycles(const DeviceLimits& limits, const StepWork& step, const BlockGrid& grid);

}  // namespace jit
