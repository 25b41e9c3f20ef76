// The parameters of the kernel that transposes lists. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The work of a launch. Launches follow one another.
enum class TransposeStep : int {
  clear,  ///< counts of entries become 0
  count,  ///< how often each entry is listed
  scan,   ///< counts become starts
  fill,   ///< places are sorted by entry, those of an entry in any order
  order,  ///< those of an entry ascend
};

struct TransposeListsParams {
  const int* indices;   ///< (rows, heads, entries)
  const int* counts;    ///< (rows, heads); null: all entries count
  int* starts;          ///< (heads, limit + 1), dense
  int* places;          ///< (heads, room), dense, as `unordered`
  int* unordered;       ///< likewise, scratch
  int* cursors;         ///< (heads, limit), scratch: where the next place of an entry goes
  long long index_row;  ///< strides
  long long index_head;
  long long count_row;
  long long count_head;
  int rows;
  int heads;
  int entries;
  int room;
  int limit;  ///< entries from here on, and negative ones, are skipped
  TransposeStep step;
};

inline constexpr int transpose_threads = 512;
/// Entries whose places a block orders.
inline constexpr int transpose_block_entries = 64;
/// Bytes of shared memory in which a window of places has bits.
inline constexpr int transpose_bytes = 64 * 1024;

}  // namespace jit
