// What blocks that share a unit leave for one another, and what the host knows of their work. Compiled by the host and
// by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "scheduling/key_shares.cuh"

namespace jit {

/// A word of a place where no partial result lies. Arithmetic gives no other NaN than 0x7fffffff (CUDA C++ programming
/// guide, "Floating-Point Standard"), so a result has no such word.
inline constexpr unsigned empty_word = 0xffffffff;

/// The line of work where the host knows it: all units see equally many tiles of keys, from the first key on.
struct KnownLine {
  KeyShares shares;
  int tiles;      ///< of each unit; negative: only the device knows the line
  int units;      ///< of a batch entry
  int row_tiles;  ///< of a KV head
};

struct SplitParams {
  /// Two partial results for each block: of the unit that it enters in the middle, and of the one that it leaves in
  /// the middle. Each has rows of O in fp32, not normalised, then maximum and sum of each row. All words are empty
  /// before and after the kernel: who waits for a result reads until none of its words is empty, and leaves the place as
  /// it was. Where keys are summed in spans, split_nodes(levels) results for each block, of any contents
  /// (split_keys/span_results.cuh).
  float* partials;
  int partial_rows;  ///< for which there is room in each
  KnownLine known;
  unsigned*
      counters;  ///< one for each block, 0 before and after the kernel; where keys are summed in spans, as
  int levels;    ///< of the tree of the spans of the longest sequence
  // Where another kernel has the requests of many queries:
  int line_blocks;    ///< that share the line: of this launch, or of two, one after the other
  int blocks_before;  ///< of the one before; 0 for the first
  bool gives_way;     ///< whether some of the blocks leave their multiprocessors to the other kernel at once
};

/// Floats of one partial result.
JIT_HOST_DEVICE constexpr int partial_floats(int rows, int head_dim_v) { return rows * (head_dim_v + 2); }

/// Nodes of a tree of spans for which each block has room: left and right ones of each level of a part that begins within a
/// unit, and left ones of one that begins where its unit does.
JIT_HOST_DEVICE constexpr int split_nodes(int levels) { return 3 * levels; }

/// Partial results for which there is room.
JIT_HOST_DEVICE constexpr int most_partials(int blocks) { return 2 * blocks; }

}  // namespace jit
