// Rows of a tile in shared memory as the left operand of products.
#pragma once

#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// A fragments of 16 · row_blocks rows of `Tile` from `first_row` on, loaded step by step.
template <class Tile, int row_blocks>
class TileFragments {
 public:
  JIT_DEVICE TileFragments(unsigned tile, int first_row)
      : lane_address_(tile + Tile::offset(first_row + lane_id() % 16, lane_id() / 16)) {}

  /// The A fragments of the 16 columns from 16 · step on.
  JIT_DEVICE void get(unsigned (&a)[row_blocks][4], int step) const {
#pragma unroll
    for (int m = 0; m < row_blocks; ++m) ldmatrix_x4(a[m], Tile::advance(lane_address_, m * 16, 2 * step));
  }

 private:
  unsigned lane_address_;  // of the row and chunk that this lane gives to ldmatrix, first step
};

/// Loads the A fragments of 64 rows of a Tile at shared address `tile`, from row `row` on, for `steps` k-steps along
/// its columns. By a warpgroup.
template <class Tile, int steps>
JIT_DEVICE void load_rows(unsigned (&rows)[steps][4], unsigned tile, int row) {
  const unsigned thread = threadIdx.x % warpgroup_size;
  const int own_row = row + static_cast<int>(thread / warp_size * 16 + thread % 16);
  const unsigned own = Tile::chunk_address(tile, own_row, thread % warp_size / 16);
#pragma unroll
  // mutate: StepsOfHeldKeysInAnotherOrder
  for (int step = 0; step < steps; ++step) ldmatrix_x4(rows[step], Tile::chunk_behind(own, 2 * step));
}

}  // namespace jit
