// A product leaves a warp's registers for global memory.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Writes the rows of a warp's product, times `factor` and rounded, to those of `target` from `row` on, but none from
/// `row_end` on and `columns` columns alone. They go through rows `tile_row` and following of a tile in shared memory,
/// which are the warp's own, so that whole rows are written at once.
template <class Tile, int columns, int alignment, class Product, class Element>
__device__ __forceinline__ void store_product(const Product& product, float factor,
                                              const DenseRows<Element>& target, int row, int row_end,
                                              unsigned tile, int tile_row) {
  using Layout = typename Product::Layout;
  const int lane = lane_id();
  const unsigned address = tile + Tile::offset(tile_row + Layout::lane_row(lane), 0) +
                           Layout::lane_column(lane) * ElementTraits<Element>::bytes;
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) {
      const unsigned packed = pack<Element>(product.at(r, n, 0) * factor, product.at(r, n, 1) * factor);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(Tile::advance(address, Layout::row(0, r / 2, r % 2), n)),
                   "r"(packed)
                   : "memory");
    }
  }
  __syncwarp();
  store_tile_rows<Tile, columns, Product::row_blocks * Layout::block_rows, alignment>(target, row, row_end,
                                                                                      tile, tile_row);
}

}  // namespace jit
