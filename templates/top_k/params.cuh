// The parameters of the kernel that chooses the largest scores of each row, for the host and the device.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct TopKParams {
  const void* scores;  ///< (rows, heads, columns)
  long long score_row;
  long long score_head;
  const int* starts;  ///< (rows); null: 0
  const int* ends;    ///< (rows); null: columns
  int* indices;       ///< (rows, heads, k)
  long long index_row;
  long long index_head;
  int* counts;  ///< (rows, heads)
  long long count_row;
  long long count_head;
  const int* page_table;  ///< (entries, pages); null: indices are columns
  long long table_stride;
  int pages;
  int rows_per_entry;  ///< of the table
  int rows;
  int heads;
  int columns;
};

inline constexpr int top_k_threads = 512;
/// Columns of a row that a warp keeps in registers; longer rows have a block each.
inline constexpr int top_k_warp_columns = 1024;
/// Blocks that share a row where rows are few and longer than this.
inline constexpr int top_k_cluster = 4;
inline constexpr int top_k_shared_columns = 16384;
inline constexpr int most_top_k = 2048;

/// Bins of a digit. A threshold of 32 bits is found in three digits or fewer.
inline constexpr int top_k_bins = 2048;
/// Columns whose bits are in shared memory at once.
inline constexpr int top_k_window = 65536;

/// Candidates that a block has room for: enough that a sample of the row nearly always says where to cut it.
JIT_HOST_DEVICE constexpr int top_k_capacity(int k) { return 3 * k > 2048 ? 3 * k : 2048; }

/// Offsets in shared memory, in words.
struct TopKSmem {
  int bins;     ///< later the chosen columns
  int sure;     ///< bits of columns whose keys exceed the threshold
  int tied;     ///< bits of columns whose keys are it
  int keys;     ///< of candidates
  int columns;  ///< of candidates
  int sums;     ///< of warps
  int numbers;  ///< that one thread finds for all: top_k_numbers
  int total;
};
inline constexpr int top_k_numbers = 6;

JIT_HOST_DEVICE constexpr TopKSmem top_k_smem(int k) {
  TopKSmem smem{};
  smem.sure = top_k_bins;
  smem.tied = smem.sure + top_k_window / 32;
  smem.keys = smem.tied + top_k_window / 32;
  smem.columns = smem.keys + top_k_capacity(k);
  smem.sums = smem.columns + top_k_capacity(k);
  smem.numbers = smem.sums + top_k_threads / 32;
  smem.total = smem.numbers + top_k_numbers;
  return smem;
}

}  // namespace jit
