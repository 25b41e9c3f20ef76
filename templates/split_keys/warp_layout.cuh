// Shared memory of warps that multiply 16 rows by mma.sync. Host and NVRTC compile this file.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// Rows of a warp, as of an mma, unless a config has fewer.
inline constexpr int rows_per_warp = 16;
/// Adjacent columns of a row of O that are merged together.
inline constexpr int piece_columns = 4;
/// Padding in floats after each row of a warp's results, against bank conflicts of stores.
inline constexpr int result_padding = 8;

/// Warps among which the columns of O of wide heads are divided. Each has few columns, as merging results takes
/// registers, too.
JIT_HOST_DEVICE constexpr int split_column_warps(int head_dim, int head_dim_v) {
  constexpr int few_columns = most_warp_columns / 2;
  const int columns = head_dim > head_dim_v ? head_dim : head_dim_v;
  return columns <= most_warp_columns ? 1 : (columns + few_columns - 1) / few_columns;
}

/// Bytes of the results of all warps, with `rows` rows in all: rows of O, and maximum and sum of each row.
JIT_HOST_DEVICE constexpr int result_bytes(int rows, int head_dim_v) {
  return rows * (padded_head_dim(head_dim_v) + result_padding + 2) * 4;
}

}  // namespace jit
