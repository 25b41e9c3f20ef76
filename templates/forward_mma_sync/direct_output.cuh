// O from accumulators straight to global memory, where a lane has four neighbours of a row.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "forward_mma_sync/traits.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mma_sync {

/// Writes the rows of a warp to those of `target` from `first_row` on, but none from `row_end` on, and finishes their columns
/// on the way. They have been multiplied by `inverse`. Lanes of a quad have 16 columns side by side: of 16 bits a whole
/// sector, of floats two.
template <class Config, class Rows>
__device__ __forceinline__ void store_output_rows(
    const Rows& target, int first_row, int row_end, typename KernelTraits<Config>::Output& output,
    const typename KernelTraits<Config>::Columns& columns,
    const float (&inverse)[KernelTraits<Config>::Output::rows]) {
  using Output = typename KernelTraits<Config>::Output;
  using Layout = typename Output::Layout;
  static_assert(is_same<Layout, EvenOddLayout>, "a lane has four neighbours of a row");
  const int lane = lane_id(), first_column = Layout::lane_column(lane);
  Output::for_each_row(first_row + Layout::lane_row(lane), [&](int r, int row) {
    if (row >= row_end) return;  // mutate: RowsBehindTheLast
    auto* const own = target.at(row) + first_column;
#pragma unroll
    for (int n = 0; n < Output::column_blocks; n += 2) {
      const int column = Layout::column(0, n, 0);
      if (first_column + column >= Config::head_dim_v) break;  // mutate: ColumnsBehindTheLast
      columns.finish(output, r, n);
      columns.finish(output, r, n + 1);  // mutate: OddColumnsUnfinished
      const auto kept = [&](int block, int i) {
        return keep_if_has_keys(output.at(r, block, i), inverse[r]);
      };
      store_four<Config::alignment>(own + column,
                                    // mutate: NeighboursExchanged
                                    make_float4(kept(n, 0), kept(n + 1, 0), kept(n, 1), kept(n + 1, 1)));
    }
  });
}

}  // namespace jit::forward_mma_sync
