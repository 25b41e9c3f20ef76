// Rows and columns of a product of queries and keys.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Products whose rows are queries and whose columns are keys.
struct QueriesByKeys {
  static constexpr bool rows_are_queries = true;
  static __device__ __forceinline__ int query(int row, int /*column*/) { return row; }
  static __device__ __forceinline__ int key(int /*row*/, int column) { return column; }
};
/// The other way round.
struct KeysByQueries {
  static constexpr bool rows_are_queries = false;
  static __device__ __forceinline__ int query(int /*row*/, int column) { return column; }
  static __device__ __forceinline__ int key(int row, int /*column*/) { return row; }
};

}  // namespace jit
