// A product leaves a warp's registers for rows of global memory, without shared memory.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Writes a warp's product of 16 rows, times `factor` and rounded, to the rows of `target` from `first_row` on, but none
/// from `row_end` on and `columns` columns alone, a multiple of 8. Each quad of lanes has pieces of 8 columns of a row
/// in 4 words: transposed, every lane writes whole pieces. Rows are aligned to 16 bytes.
template <int columns, class Product, class Element>
__device__ __forceinline__ void store_rows(const Product& product, float factor,
                                           const DenseRows<Element>& target, int first_row, int row_end) {
  using Layout = typename Product::Layout;
  static_assert(Product::row_blocks == 1);
  const int lane = lane_id();
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
    const int row = Layout::row(first_row + Layout::lane_row(lane), 0, r);
    Element* const pieces = target.at(row) + lane % 4 * 8;
#pragma unroll
    for (int n = 0; n < Product::column_blocks; n += 4) {
      unsigned words[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && n + i < Product::column_blocks; ++i)
        words[i] = pack<Element>(product.at(r, n + i, 0) * factor, product.at(r, n + i, 1) * factor);
      transpose_quad(words);
      if (row < row_end && (n + lane % 4) * 8 < columns)
        *reinterpret_cast<uint4*>(pieces + n * 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

}  // namespace jit
