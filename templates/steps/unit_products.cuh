// Products by mma.sync of tiles in shared memory, in units that warps take in turns.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit {

/// 16 rows and 16 columns of a product.
using UnitProduct = Accumulator<MmaLayout, 16, 16>;

/// D += A Bᵀ: rows of A from `row` on, rows of B from `column` on, over `steps` · 16 columns of both.
template <class Element, class ATile, class BTile, int steps>
JIT_DEVICE void add_rows_by_rows(UnitProduct& product, unsigned a_tile, int row, unsigned b_tile,
                                 int column) {
  const int lane = lane_id();
  const unsigned a_address = a_tile + ATile::offset(row + lane % 16, lane / 16);
  const unsigned b_address = b_tile + BTile::offset(column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 4  // registers are few where rows are long
  for (int step = 0; step < steps; ++step) {
    unsigned a[4], b[4];
    ldmatrix_x4(a, ATile::advance(a_address, 0, 2 * step));
    ldmatrix_x4(b, BTile::advance(b_address, 0, 2 * step));
    mma_m16n8k16<Element>(product.registers[0][0], a, b[0], b[1]);
    mma_m16n8k16<Element>(product.registers[0][1], a, b[2], b[3]);
  }
}

/// D += A B: all rows of A, 16 of them a product, and the 16 columns of B that are its `unit`-th.
template <class Element, class ATile, class BTile>
JIT_DEVICE void add_rows_by_columns(UnitProduct (&products)[ATile::rows / 16], unsigned a_tile,
                                    unsigned b_tile, int unit) {
  const int lane = lane_id();
#pragma unroll 1  // registers are few where rows are many
  for (int step = 0; step < BTile::rows / 16; ++step) {
    unsigned b[4];
    ldmatrix_x4_trans(b, b_tile + BTile::offset(16 * step + lane % 16, 2 * unit + lane / 16));
#pragma unroll
    for (int m = 0; m < ATile::rows / 16; ++m) {
      unsigned a[4];
      ldmatrix_x4(a, a_tile + ATile::offset(16 * m + lane % 16, 2 * step + lane / 16));
      mma_m16n8k16<Element>(products[m].registers[0][0], a, b[0], b[1]);
      mma_m16n8k16<Element>(products[m].registers[0][1], a, b[2], b[3]);
    }
  }
}

/// D += Aᵀ B: 16 columns of A from `column` on, and of B those that are its `unit`-th.
template <class Element, class ATile, class BTile>
JIT_DEVICE void add_columns_by_columns(UnitProduct& product, unsigned a_tile, int column, unsigned b_tile,
                                       int unit) {
  const int lane = lane_id();
#pragma unroll
  for (int step = 0; step < BTile::rows / 16; ++step) {
    unsigned a[4], b[4];
    ldmatrix_x4_trans(
        a, a_tile + ATile::offset(16 * step + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
    ldmatrix_x4_trans(b, b_tile + BTile::offset(16 * step + lane % 16, 2 * unit + lane / 16));
    mma_m16n8k16<Element>(product.registers[0][0], a, b[0], b[1]);
    mma_m16n8k16<Element>(product.registers[0][1], a, b[2], b[3]);
  }
}

/// Stores the sums over a unit's rows, of each of its columns, to floats at `sums` in shared memory.
JIT_DEVICE void store_column_sums(const UnitProduct& product, unsigned sums) {
#pragma unroll
  for (int n = 0; n < UnitProduct::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < UnitProduct::pair; ++i) {
      float sum = product.at(0, n, i) + product.at(1, n, i);
#pragma unroll
      for (int step = 4; step < warp_size; step *= 2) sum += __shfl_xor_sync(full_warp, sum, step);
      const int column = MmaLayout::column(MmaLayout::lane_column(lane_id()), n, i);
      if (lane_id() < 4) store_shared(sums + static_cast<unsigned>(column * 4), __float_as_int(sum));
    }
  }
}

}  // namespace jit
