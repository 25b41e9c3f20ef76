// LSE: log(Σ exp(score)) of each row, a float for each query.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/functor.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// LSE of a sequence and head, one per query.
struct LseRows {
  DenseRows<float> rows;
  int seqlen_q;
};

/// Writes `lse` of a product's rows; the first row is query `first_row`. find_rows() returns LseRows.
template <class Product, class FindRows>
JIT_DEVICE void write_lse(FindRows find_rows, int first_row, const float (&lse)[Product::rows]) {
  using Layout = typename Product::Layout;
  if (!Layout::is_row_leader(lane_id())) return;
  const LseRows found = find_rows();
  Product::for_each_row(first_row, [&](int r, int upper_row) {
    const int row = upper_row + Layout::own_row();
    if (row < found.seqlen_q) *found.rows.at(row) = lse[r];
  });
}

/// Adds to LSE what subtracting the mean of the keys has taken from the scores of 8-bit queries: q · mean times the
/// scale of scores. It is constant along a row, so that only LSE changes, and O through sinks. Called before sinks are
/// added. The product's first row is query `first_row`.
template <class Config, class Product>
JIT_DEVICE void add_lse_shift(const DescaleParams& descale, float softmax_scale, const BlockContext& context,
                              int first_row, float (&lse)[Product::rows]) {
  if constexpr (!has_lse_shifts<Config>) return;
  const TensorStrides& strides = descale.lse_shift_strides;
  const float* const of_head = descale.lse_shift + context.batch * strides.batch +
                               context.head * strides.head + context.q_begin * strides.seq;
  const int lane_row = Product::Layout::lane_row(lane_id());
  Product::for_each_row(first_row, [&](int r, int upper_row) {
    const int row = upper_row + lane_row;
    // mutate: ShiftOfAnotherQuery
    if (row < context.seqlen_q) lse[r] += softmax_scale * of_head[row * strides.seq];
  });
}

}  // namespace jit
