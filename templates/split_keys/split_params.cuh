// What blocks that share a unit leave for one another. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "scheduling/key_shares.cuh"

namespace jit {

struct SplitParams {
  /// Two partial results for each piece of the line: of the unit that begins before it, and of the one that ends behind
  /// it. Each has rows of O in fp32, not normalised, then maximum and sum of each row.
  float* partials;
  /// split_counters(blocks) of them, 0 before and after the kernel.
  unsigned* counters;

  /// Of the pieces of the tail that blocks have asked for.
  JIT_HOST_DEVICE unsigned* tail_counter() const { return counters; }
  /// Of what is done of the unit that begins in a piece and ends behind it.
  JIT_HOST_DEVICE unsigned* unit_counter(int piece) const { return counters + 1 + 2 * piece; }
  /// Of the parts that are done of a group of them; `piece` begins in the middle of the unit.
  JIT_HOST_DEVICE unsigned* group_counter(int piece) const { return counters + 2 + 2 * piece; }
};

JIT_HOST_DEVICE constexpr int split_counters(int blocks) { return 1 + 2 * most_pieces(blocks); }

/// Floats of one partial result.
JIT_HOST_DEVICE constexpr int partial_floats(int rows, int head_dim_v) { return rows * (head_dim_v + 2); }

/// Partial results for which there is room.
JIT_HOST_DEVICE constexpr int most_partials(int blocks) { return 2 * most_pieces(blocks); }

}  // namespace jit
