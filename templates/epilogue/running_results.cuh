// Results over several calls, each of other keys: O in fp32 and LSE stand in memory, and a call's epilogue adds its own
// keys to them, so that no partial result is written, and none is rounded.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/lse.cuh"
#include "epilogue/output_functor.cuh"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// Shares of rows in their merged results.
template <int rows>
struct RunningShares {
  float before[rows];  ///< of the results in memory; 0: these are not read
  float own[rows];     ///< of the call's keys
};

/// Merges `lse` of a product's rows with running_lse, of the results in memory; the first row is query `first_row`.
/// find_rows() returns LseRows. By the warp that has all columns of the rows.
template <class Product, class FindRows>
JIT_DEVICE RunningShares<Product::rows> merge_running_lse(FindRows find_rows, int first_row,
                                                          const float (&lse)[Product::rows]) {
  using Layout = typename Product::Layout;
  const LseRows found = find_rows();
  const bool is_leader = Layout::is_row_leader(lane_id());
  RunningShares<Product::rows> shares;
  float merged[Product::rows];
  Product::for_each_row(first_row, [&](int r, int upper_row) {
    const int row = upper_row + Layout::own_row();
    const bool exists = is_leader && found.rows.first != nullptr && row < found.seqlen_q;
    const float of_lane =
        exists ? *found.rows.at(row) : negative_infinity();  // of leaders alone, since they write
    const float before = Layout::reduce(of_lane, max_nan);   // mutate: StateOfOneLane
    const float highest = max_nan(before, lse[r]), base = highest == negative_infinity() ? 0 : highest;
    const float of_before = ex2((before - base) * log2_e), of_own = ex2((lse[r] - base) * log2_e);
    const float sum = of_before + of_own;
    merged[r] = sum == 0 ? negative_infinity() : base + lg2(sum) * ln_2;
    const float inverse = sum == 0 ? 0 : rcp(sum);
    shares.before[r] = of_before * inverse;
    shares.own[r] = of_own * inverse;
  });
  if (found.rows.first != nullptr) write_lse<Product>(find_rows, first_row, merged);
  return shares;
}

/// Adds to a product's normalized rows, times the own shares, what O in memory counts for. `target` is O, of fp32.
template <class Config, class Product>
JIT_DEVICE void add_running_output(const DenseRows<float>& target, int row_end, int first_row,
                                   const RunningShares<Product::rows>& shares, Product& output,
                                   float (&inverse)[Product::rows]) {
  Product::for_each_row(first_row + Product::Layout::lane_row(lane_id()), [&](int r, int row) {
    clear_row_without_keys(output, r, inverse[r]);
    if (row >= row_end || shares.before[r] == 0) return;
    for_neighbors<Config, Product>(0, [&]<int count>(int n, int i, int column) {
      const float* const before = target.at(row) + column;
#pragma unroll
      for (int j = 0; j < count; ++j)
        output.at(r, n, i + j) = __fmaf_rn(shares.before[r], before[j], output.at(r, n, i + j));
    });
  });
}

}  // namespace jit
