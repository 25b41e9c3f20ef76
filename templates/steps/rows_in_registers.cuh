// Rows of a tile that a consumer multiplies in every step, as operands in its registers: shared memory is read for the other
// operand alone.
#pragma once

#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// Loads the 64 rows from `row` on of a Tile at shared address `tile`, as A of so many steps of a sum along its columns.
/// By a warpgroup.
template <class Tile, int steps>
__device__ __forceinline__ void load_rows(unsigned (&rows)[steps][4], unsigned tile, int row) {
  const unsigned thread = threadIdx.x % warpgroup_size;
  const int own_row = row + static_cast<int>(thread / warp_size * 16 + thread % 16);
  const unsigned own = Tile::chunk_address(tile, own_row, thread % warp_size / 16);
#pragma unroll
  // mutate: StepsOfHeldKeysInAnotherOrder
  for (int step = 0; step < steps; ++step) ldmatrix_x4(rows[step], Tile::chunk_behind(own, 2 * step));
}

}  // namespace jit
