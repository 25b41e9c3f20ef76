// Stores a product from a warp's registers to global memory, through shared memory or directly.
#pragma once

#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Writes a warp's product, times `factor` and rounded, to rows [row, row_end) and `columns` columns of `target`. It
/// passes through the warp's own rows of a tile in shared memory, from `tile_row` on, so that whole rows are written at
/// once. With several `parts` of the columns the product is part `part`, and the same part of the tile's columns is the
/// warp's own.
template <class Tile, int columns, int alignment, int parts = 1, class Product, class Element>
JIT_DEVICE void store_product(const Product& product, float factor, const DenseRows<Element>& target, int row,
                              int row_end, unsigned tile, int tile_row, int part = 0) {
  using Layout = typename Product::Layout;
  constexpr int part_columns = parts == 1 ? columns : Product::column_blocks * Layout::block_columns;
  const int lane = lane_id(), first_column = parts == 1 ? 0 : part * part_columns;
  tile += first_column * ElementTraits<Element>::bytes;
  const unsigned address = tile + Tile::offset(tile_row + Layout::lane_row(lane), 0) +
                           Layout::lane_column(lane) * ElementTraits<Element>::bytes;
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) {
      const unsigned packed = pack<Element>(product.at(r, n, 0) * factor, product.at(r, n, 1) * factor);
      store_shared(Tile::advance(address, Layout::row(0, r / 2, r % 2), n), static_cast<int>(packed));
    }
  }
  __syncwarp();
  store_tile_rows<Tile, part_columns, Product::row_blocks * Layout::block_rows, alignment>(
      target.from(0, first_column), row, row_end, tile, tile_row,
      parts == 1 ? part_columns : columns - first_column);
}

/// Writes a row with `columns` columns, if it exists. A quad of lanes has pieces of 8 columns in 4 words; word(n) is
/// the lane's word of block n. After a transpose each lane writes whole pieces.
template <int column_blocks, class Element, class Word>
JIT_DEVICE void store_by_quads(Element* row, int columns, bool exists, Word word) {
  const int piece = lane_id() % 4;
  Element* const own = row + piece * 8;
#pragma unroll
  for (int d = 0; d < column_blocks; d += 4) {
    unsigned words[4] = {};
#pragma unroll
    for (int i = 0; i < 4 && d + i < column_blocks; ++i) words[i] = word(d + i);
    transpose_quad(words);                      // mutate: QuadsAreNotTransposed
    if (exists && (d + piece) * 8 < columns) {  // mutate: WritesWhatIsNone
      *reinterpret_cast<uint4*>(own + d * 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

/// Writes a warp's product of 16 rows, times `factor` and rounded, to the rows of `target` from `first_row` on, but none
/// from `row_end` on and `columns` columns alone, a multiple of 8. Rows are aligned to 16 bytes.
template <int columns, class Product, class Element>
JIT_DEVICE void store_rows(const Product& product, float factor, const DenseRows<Element>& target,
                           int first_row, int row_end) {
  using Layout = typename Product::Layout;
  static_assert(Product::row_blocks == 1);
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
    const int row = Layout::row(first_row + Layout::lane_row(lane_id()), 0, r);
    if constexpr (sizeof(Element) == 4) {  // a quad of lanes already writes whole sectors
      if (row >= row_end) continue;
      float2* const own = reinterpret_cast<float2*>(target.at(row) + Layout::lane_column(lane_id()));
#pragma unroll
      for (int n = 0; n < Product::column_blocks; ++n) {
        if (Layout::column(0, n, 0) < columns)
          own[Layout::column(0, n, 0) / 2] =
              make_float2(product.at(r, n, 0) * factor, product.at(r, n, 1) * factor);
      }
      continue;
    }
    store_by_quads<Product::column_blocks>(target.at(row), columns, row < row_end, [&](int n) {
      return pack<Element>(product.at(r, n, 0) * factor, product.at(r, n, 1) * factor);
    });
  }
}

}  // namespace jit
