// Values per row, or per column, of a product, in the form in which the product's threads read them.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// A number of each row of a product of which a lane holds values.
template <int rows>
struct RowNumbers {
  float numbers[rows];

  /// For column block `n`; `of(r, i)` is the number for value `i` of the lane's row `r` there.
  JIT_DEVICE const RowNumbers& at(int /*n*/) const { return *this; }
  JIT_DEVICE float of(int r, int /*i*/) const { return numbers[r]; }
};

/// Numbers of each column, in shared memory from `address` on, where the number of the lane's first column lies. A pair lies
/// in each block of columns.
template <int block_columns>
struct ColumnNumbersOf {
  unsigned address;

  struct Pair {
    float numbers[2];
    JIT_DEVICE float of(int /*r*/, int i) const { return numbers[i]; }
  };
  JIT_DEVICE Pair at(int n) const {
    Pair pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.numbers[0]), "=f"(pair.numbers[1])
                 : "r"(address + n * block_columns * static_cast<unsigned>(sizeof(float)))
                 : "memory");
    return pair;
  }
};
using ColumnNumbers = ColumnNumbersOf<8>;

/// Calls f(value, number, r, n, i) for each value of a product, block by block.
template <class Product, class Numbers, class F>
JIT_DEVICE void with_numbers(Product& product, const Numbers& numbers, F f) {
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
    const auto& block = numbers.at(n);
#pragma unroll
    for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
      for (int i = 0; i < Product::pair; ++i) f(product.at(r, n, i), block.of(r, i), r, n, i);
    }
  }
}

}  // namespace jit
