// Products by mma.sync of tiles in shared memory, in units that warps take in turns.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit {

/// 16 rows and 16 columns of a product.
using UnitProduct = Accumulator<MmaLayout, 16, 16>;

/// D += A Bᵀ: rows of A from `row` on, rows of B from `column` on, over all of their columns that B has.
template <class Element, class ATile, class BTile>
JIT_DEVICE void add_rows_by_rows(UnitProduct& product, unsigned a_tile, int row, unsigned b_tile, int column,
                                 int steps) {
  const int lane = lane_id();
  const unsigned a_address = a_tile + ATile::offset(row + lane % 16, lane / 16);
  const unsigned b_address = b_tile + BTile::offset(column + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int step = 0; step < minimum(ATile::chunks, BTile::chunks) / 2; ++step) {
    if (step >= steps) break;
    unsigned a[4], b[4];
    ldmatrix_x4(a, ATile::advance(a_address, 0, 2 * step));
    ldmatrix_x4(b, BTile::advance(b_address, 0, 2 * step));
    mma_m16n8k16<Element>(product.registers[0][0], a, b[0], b[1]);
    mma_m16n8k16<Element>(product.registers[0][1], a, b[2], b[3]);
  }
}

/// D += A B: 16 rows of A from `row` on, 16 columns of B that are its `unit`-th.
template <class Element, class ATile, class BTile>
JIT_DEVICE void add_rows_by_columns(UnitProduct& product, unsigned a_tile, int row, unsigned b_tile, int unit) {
  const int lane = lane_id();
#pragma unroll
  for (int step = 0; step < BTile::rows / 16; ++step) {
    unsigned a[4], b[4];
    ldmatrix_x4(a, a_tile + ATile::offset(row + lane % 16, 2 * step + lane / 16));
    ldmatrix_x4_trans(b, b_tile + BTile::offset(16 * step + lane % 16, 2 * unit + lane / 16));
    mma_m16n8k16<Element>(product.registers[0][0], a, b[0], b[1]);
    mma_m16n8k16<Element>(product.registers[0][1], a, b[2], b[3]);
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
    ldmatrix_x4_trans(a, a_tile + ATile::offset(16 * step + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
    ldmatrix_x4_trans(b, b_tile + BTile::offset(16 * step + lane % 16, 2 * unit + lane / 16));
    mma_m16n8k16<Element>(product.registers[0][0], a, b[0], b[1]);
    mma_m16n8k16<Element>(product.registers[0][1], a, b[2], b[3]);
  }
}

}  // namespace jit
