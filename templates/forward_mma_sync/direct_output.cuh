// O from accumulators straight to global memory, where a lane has four neighbours of a row.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "forward_mma_sync/traits.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mma_sync {

/// Four neighbours, in pieces of `alignment` bytes.
template <int alignment>
__device__ __forceinline__ void store_neighbours(float* target, const float (&values)[4], float inverse) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = keep_if_has_keys(static_cast<unsigned>(__float_as_int(values[i])), inverse);
  store_chunk<maximum<int>(alignment, sizeof(float))>(target, words);
}
template <int alignment, class Element>
__device__ __forceinline__ void store_neighbours(Element* target, const float (&values)[4], float inverse) {
  store_pairs<alignment>(target, {keep_if_has_keys(pack<Element>(values[0], values[1]), inverse),
                                  keep_if_has_keys(pack<Element>(values[2], values[3]), inverse)});
}

/// Writes the rows of a warp to those of `target` from `first_row` on, but none from `row_end` on. They have been
/// multiplied by `inverse`. Lanes of a quad have 16 columns side by side: of 16 bits a whole sector, of floats two.
template <class Config, class Rows>
__device__ __forceinline__ void store_output_rows(
    const Rows& target, int first_row, int row_end, const typename KernelTraits<Config>::Output& output,
    const float (&inverse)[KernelTraits<Config>::Output::rows]) {
  using Output = typename KernelTraits<Config>::Output;
  using Layout = typename Output::Layout;
  static_assert(is_same<Layout, EvenOddLayout>, "a lane has four neighbours of a row");
  const int lane = lane_id(), first_column = Layout::lane_column(lane);
  Output::for_each_row(first_row + Layout::lane_row(lane), [&](int r, int row) {
    if (row >= row_end) return;
    auto* const own = target.at(row) + first_column;
#pragma unroll
    for (int n = 0; n < Output::column_blocks; n += 2) {
      const int column = Layout::column(0, n, 0);
      if (first_column + column >= Config::head_dim_v) break;
      const float values[4] = {output.at(r, n, 0), output.at(r, n + 1, 0), output.at(r, n, 1),
                               output.at(r, n + 1, 1)};
      store_neighbours<Config::alignment>(own + column, values, inverse[r]);
    }
  });
}

}  // namespace jit::forward_mma_sync
