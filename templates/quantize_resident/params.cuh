// Parameters of the quantizer that keeps its rows, and how it shares out shared memory. Compiled by the host
// and by NVRTC.
#pragma once

#include "base/tensor_strides.cuh"
#include "quantize/params.cuh"

namespace jit {

/// Warps of a block: of statistics, of rounding, and one each that loads, that waits for others, and that adds up.
inline constexpr int resident_statistics_warps = 8;
inline constexpr int resident_rounding_warps = 8;
inline constexpr int resident_block_threads = 32 * (resident_statistics_warps + resident_rounding_warps + 3);
/// Columns that are added up together, by a warp.
inline constexpr int resident_job_columns = 4;
/// Shared memory of a block, on sm_90.
inline constexpr int resident_most_bytes = 227 * 1024;

/// A word that one block leaves for others: a number, and above it in which launch, or part of one, it was left there.
/// So nothing is cleared between launches, and no fence stands between: a word is written and read as a whole.
using ResidentWord = unsigned long long;

/// Offsets in shared memory: pieces of work, where they stay; what warps of statistics leave for one another; for each
/// piece what its columns lose and are multiplied by; magnitudes of rows and scales of blocks; barriers.
struct ResidentLayout {
  int depth;  ///< pieces of work that have room
  int slot_bytes;
  int result_floats;  ///< of a piece
  int statistics, results, factors, blocks, barriers, pieces, magnitudes, bytes;
};

/// `statistics` is the most that a piece of work leaves of its rows; `block_numbers` what scales of blocks take.
JIT_HOST_DEVICE constexpr ResidentLayout resident_layout(int slot_bytes, int statistics, int result_floats,
                                                         int block_numbers) {
  const auto in_lines = [](int bytes) { return (bytes + 127) / 128 * 128; };
  ResidentLayout layout = {};
  layout.slot_bytes = in_lines(slot_bytes);
  layout.result_floats = result_floats;
  const int warps = resident_threads / 32;
  const int shared_bytes = in_lines(4 * (statistics > 1 ? warps * statistics : 0)) +
                           in_lines(4 * block_numbers) + in_lines(4 * 2 * resident_statistics_warps);
  // Bytes of a piece: its rows, results and their factor, three barriers, its number.
  const int of_piece = layout.slot_bytes + 4 * result_floats + 4 + 3 * 8 + 4;
  layout.depth = (resident_most_bytes - shared_bytes - 4 * 128) / of_piece;
  layout.statistics = layout.depth * layout.slot_bytes;
  layout.results = layout.statistics + in_lines(4 * (statistics > 1 ? warps * statistics : 0));
  layout.factors = layout.results + in_lines(layout.depth * 4 * result_floats);
  layout.blocks = layout.factors + in_lines(layout.depth * 4);
  layout.barriers = layout.blocks + in_lines(4 * block_numbers);
  layout.pieces = layout.barriers + in_lines(layout.depth * 3 * 8);
  layout.magnitudes = layout.pieces + in_lines(layout.depth * 4);
  layout.bytes = layout.magnitudes + in_lines(4 * 2 * resident_statistics_warps);
  return layout;
}

/// Words of one of q, k and v that blocks leave for one another.
struct ResidentTensor {
  /// Statistics of pieces of work. A magnitude of each: (units, items); or statistics of columns: (window,
  /// items, statistics).
  ResidentWord* found;
  ResidentWord* results;  ///< of units, where there are statistics of columns: (units, numbers, columns)
};

struct ResidentParams {
  TensorMap maps[3];  ///< of q, k and v as they are read, in boxes of a piece of work
  QuantizeParams all;
  ResidentTensor tensors[3];
  /// Tickets that were drawn, blocks that are done, and the number that the last launch ended with, each less 1: all
  /// bits are 1 at first. Words follow.
  unsigned* control;
  ResidentWord* words;
  int word_count;  ///< of all memory behind `control`, more than this call's
  int window;      ///< units whose statistics of columns have room; the next ones take the first one's
  int iterations;  ///< of the window
};

}  // namespace jit
