// The fragments of a step by ldmatrix, from tiles whose chunks are swizzled: an instruction loads four 8 × 8 matrices
// and gives each lane the words that mma.sync wants of it.
#pragma once

#include "base/prelude.cuh"
#include "matmul/warp_product.cuh"
#include "ptx/ldmatrix.cuh"
#include "steps/tile_fragments.cuh"

namespace jit::matmul {

/// The tiles of one stage, as the warp reads them.
template <class Operands>
class MatrixLoads {
  using BTile = typename Operands::BTile;

 public:
  __device__ __forceinline__ MatrixLoads(unsigned a_tile, unsigned b_tile)
      : a_(a_tile, warp_row()),
        b_(b_tile + BTile::offset(warp_column() + lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2)) {}

  /// Four loads for A and four for B.
  __device__ __forceinline__ void load(Fragments& fragments, int step) const {
    a_.get(fragments.a, step);
#pragma unroll
    for (int n = 0; n < WarpSums::column_blocks; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, BTile::advance(b_, 8 * n, 2 * step));
      fragments.b[n][0] = b[0];
      fragments.b[n][1] = b[1];
      fragments.b[n + 1][0] = b[2];
      fragments.b[n + 1][1] = b[3];
    }
  }

 private:
  TileFragments<typename Operands::ATile, WarpSums::row_blocks> a_;
  unsigned b_;  // of the row and chunk that this lane gives to ldmatrix, first step
};

}  // namespace jit::matmul
