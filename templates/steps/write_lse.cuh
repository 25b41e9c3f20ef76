// LSE: log(Σ exp(score)) of each row, a float for each query.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Where the LSE of a sequence and head lie, a row for each of its queries.
struct LseRows {
  DenseRows<float> rows;
  int seqlen_q;
};

/// Writes the `lse` of the rows of a product of which a lane holds values, to what `find_rows` finds, a function without
/// arguments: LseRows. The product's first row is that of query `first_row`.
template <class Product, class FindRows>
__device__ __forceinline__ void write_lse(FindRows find_rows, int first_row,
                                          const float (&lse)[Product::rows]) {
  using Layout = typename Product::Layout;
  if (!Layout::speaks_for_rows(lane_id())) return;
  const LseRows found = find_rows();
  Product::for_each_row(first_row, [&](int r, int upper_row) {
    const int row = upper_row + Layout::own_row();
    if (row < found.seqlen_q) *found.rows.at(row) = lse[r];
  });
}

}  // namespace jit
