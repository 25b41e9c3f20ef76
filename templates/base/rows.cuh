// Rows of a tensor in global memory.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Rows at equal distances.
template <class T>
struct DenseRows {
  T* first;
  long long stride;  ///< elements from row to row

  JIT_DEVICE T* at(int row) const { return first + row * stride; }
  /// The rows counted from this row and column.
  JIT_DEVICE DenseRows from(int row, int column = 0) const { return {first + row * stride + column, stride}; }
};

}  // namespace jit
