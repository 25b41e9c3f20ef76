// What blocks that share a unit leave for one another. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct SplitParams {
  /// Two partial results for each block: of the unit that it enters in the middle, and of the one that it leaves in
  /// the middle. Each has rows of O in fp32, not normalised, then maximum and sum of each row.
  float* partials;
  /// split_counters(blocks) of them, 0 before and after the kernel.
  unsigned* counters;

  /// Of what is done of the unit that a block leaves in the middle.
  JIT_HOST_DEVICE unsigned* unit_counter(int block) const { return counters + 2 * block; }
  /// Of the parts that are done of a group of those of the unit that a block enters in the middle.
  JIT_HOST_DEVICE unsigned* group_counter(int block) const { return counters + 2 * block + 1; }
};

JIT_HOST_DEVICE constexpr int split_counters(int blocks) { return 2 * blocks; }

/// Floats of one partial result.
JIT_HOST_DEVICE constexpr int partial_floats(int rows, int head_dim_v) { return rows * (head_dim_v + 2); }

/// Partial results for which there is room.
JIT_HOST_DEVICE constexpr int most_partials(int blocks) { return 2 * blocks; }

}  // namespace jit
