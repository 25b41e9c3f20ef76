// The parameters of the kernel of unions of lists. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct KeyUnionParams {
  const int* indices;   ///< (rows, heads, entries)
  const int* counts;    ///< (rows, heads); null: all entries count
  int* lists;           ///< (lists, heads, room), dense, as `members`
  unsigned* members;    ///< likewise
  int* list_counts;     ///< (lists, heads), dense
  long long index_row;  ///< strides
  long long index_head;
  long long count_row;
  long long count_head;
  int rows;
  int heads;
  int entries;
  int room;
  int limit;  ///< entries from here on, and negative ones, are skipped
};

inline constexpr int key_union_threads = 512;
/// Bytes of shared memory in which a window of entries has bits.
inline constexpr int key_union_bytes = 64 * 1024;

/// Bytes of an entry's bits.
JIT_HOST_DEVICE constexpr int member_bytes(int queries) { return queries <= 8 ? 1 : queries <= 16 ? 2 : 4; }

}  // namespace jit
