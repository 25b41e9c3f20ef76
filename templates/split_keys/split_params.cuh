// What blocks that share a unit leave for one another. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct SplitParams {
  /// Two partial results for each block: of the unit that it enters in the middle, and of the one that it leaves in
  /// the middle. Each has rows of O in fp32, not normalised, then maximum and sum of each row.
  float* partials;
  /// A counter for each block, of the parts that are done of the unit that it leaves in the middle: 0 before and
  /// after the kernel.
  unsigned* counters;
};

/// Floats of one partial result.
JIT_HOST_DEVICE constexpr int partial_floats(int rows, int head_dim_v) { return rows * (head_dim_v + 2); }

}  // namespace jit
