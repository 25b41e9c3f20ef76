// Rows of a tensor in global memory.
#pragma once

namespace jit {

/// Rows at equal distances.
template <class T>
struct DenseRows {
  T* first;
  long long stride;  ///< elements from row to row

  __device__ __forceinline__ T* at(int row) const { return first + row * stride; }
  /// The rows counted from this row and column.
  __device__ __forceinline__ DenseRows from(int row, int column = 0) const {
    return {first + row * stride + column, stride};
  }
};

}  // namespace jit
