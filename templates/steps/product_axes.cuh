// Rows and columns of a product of queries and keys.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Products whose rows are queries and whose columns are keys.
struct QueriesByKeys {
  static JIT_DEVICE int query(int row, int /*column*/) { return row; }
  static JIT_DEVICE int key(int /*row*/, int column) { return column; }
};
/// The other way round.
struct KeysByQueries {
  static JIT_DEVICE int query(int /*row*/, int column) { return column; }
  static JIT_DEVICE int key(int row, int /*column*/) { return row; }
};

}  // namespace jit
