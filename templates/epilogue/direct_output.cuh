// Writes O from accumulators to global memory. A kernel family provides Traits: its Config, the Output of a warp, its
// Columns (steps/value_columns.cuh), and whether rows may lack keys.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "steps/softmax.cuh"
#include "steps/store_product.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Two floats of a row, 0 for one without keys.
JIT_DEVICE void store_pair(float* columns, float x, float y, float inverse) {
  const auto word = [&](float value) {
    return keep_if_has_keys(static_cast<unsigned>(__float_as_int(value)), inverse);
  };
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(columns), "r"(word(x)), "r"(word(y)) : "memory");
}

/// Calls f(column, values) for each four adjacent columns of the lane's row `r`, counted from the lane's first column.
/// Values have been multiplied by `inverse`; their columns are finished first.
template <class Traits, class F>
JIT_DEVICE void for_each_four(typename Traits::Output& output, int r, const typename Traits::Columns& columns,
                              float inverse, F f) {
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;
  static_assert(is_same<Layout, EvenOddLayout>, "a lane has four neighbors of a row");
  constexpr int head_dim_v = Traits::Config::head_dim_v;
  const auto kept = [&](int n, int i) {
    const float x = output.at(r, n, i);
    return Traits::may_lack_keys ? keep_if_has_keys(x, inverse) : x;
  };
#pragma unroll
  for (int n = 0; n < Output::column_blocks; n += 2) {
    const int column = Layout::column(0, n, 0);
    const bool may_end = column + 2 * Layout::block_columns > head_dim_v;
    // mutate: ColumnsBehindTheLast
    if (may_end && Layout::lane_column(reread_thread_index()) + column >= head_dim_v) break;
    columns.finish(output, r, n);
    columns.finish(output, r, n + 1);  // mutate: OddColumnsUnfinished
    // mutate: NeighborsExchanged
    f(column, make_float4(kept(n, 0), kept(n + 1, 0), kept(n, 1), kept(n + 1, 1)));
  }
}

/// Writes the rows of a warp to rows [first_row, row_end) of `target`, after finishing their columns. Rows have been
/// multiplied by `inverse`. A quad of lanes writes whole sectors directly if elements are floats, or if a lane has four
/// adjacent columns: one sector of 16-bit elements, two of floats.
template <class Traits, class Element>
JIT_DEVICE void store_output_rows(const DenseRows<Element>& target, int first_row, int row_end,
                                  typename Traits::Output& output,
                                  const typename Traits::Columns& value_columns,
                                  const float (&inverse)[Traits::Output::rows]) {
  using Config = typename Traits::Config;
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;
  const int lane = lane_id();
#pragma unroll
  for (int r = 0; r < Output::rows; ++r) {
    const int row = Layout::row(first_row + Layout::lane_row(lane), r / 2, r % 2);
    if constexpr (is_same<Layout, EvenOddLayout>) {
      if (row >= row_end) continue;  // mutate: RowsBehindTheLast
      Element* const own = target.at(row) + Layout::lane_column(lane);
      for_each_four<Traits>(output, r, value_columns, inverse[r], [&](int column, const float4& values) {
        store_four<Config::alignment>(own + column, values);
      });
      continue;
    }
    if constexpr (is_same<Element, float>) {
      float* const own = target.at(row) + Layout::lane_column(lane);
#pragma unroll
      for (int n = 0; n < Output::column_blocks; ++n) {
        value_columns.finish(output, r, n);
        if (row < row_end && Layout::column(0, n, 0) < Config::head_dim_v)
          store_pair(own + Layout::column(0, n, 0), output.at(r, n, 0), output.at(r, n, 1), inverse[r]);
      }
      continue;
    }
    store_by_quads<Output::column_blocks>(target.at(row), Config::head_dim_v, row < row_end, [&](int n) {
      value_columns.finish(output, r, n);
      return keep_if_has_keys(output.template pack_pair<Element>(r, n), inverse[r]);
    });
  }
}

}  // namespace jit
