// LSE: log(Σ exp(score)) of each row, a float for each query.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/sequences.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Writes the `lse` of the rows of a product of which a lane holds values. The product's first row is that of
/// query `first_row`.
template <class Config, class Product>
__device__ __forceinline__ void write_lse(const AttentionParams& params, int batch, int head, int first_row,
                                          const float (&lse)[Product::rows]) {
  using Layout = typename Product::Layout;
  const int lane = lane_id();
  if (!Layout::speaks_for_rows(lane)) return;
  const auto lse_rows = Sequences<Config>(params).lse_rows(batch, head);
  const int seqlen_q = Sequences<Config>(params).q(batch).length;
  Product::for_each_row(first_row, [&](int r, int upper_row) {
    const int row = upper_row + Layout::lane_row(lane);
    if (row < seqlen_q) *lse_rows.at(row) = lse[r];
  });
}

}  // namespace jit
