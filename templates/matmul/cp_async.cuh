// Step 4: cp.async in three stages. Two tiles are on their way while the third is multiplied, so that tensor cores do
// not wait for global memory, and copies hold no registers.
//
//     start copies of tiles 0 and 1
//     for each tile along k:  wait for it ─ barrier ─ start the copy two tiles ahead ─ ldmatrix, mma.sync
//
// One barrier is enough: it says that everyone's copies of the tile are there, and that every warp is done with the tile
// before, whose stage the next copy overwrites.
#pragma once

#include "base/prelude.cuh"
#include "matmul/matrix_loads.cuh"
#include "matmul/operands.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "matmul/warp_product.cuh"
#include "ptx/cp_async.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::matmul {

template <class Config>
__device__ __forceinline__ void multiply_cp_async(const MatmulParams& params) {
  using Element = typename Config::Element;
  using Tiles = Operands<SmemTile, Element>;
  extern __shared__ __align__(128) unsigned char smem[];
  const Tiles operands(params, smem_address(smem));
  const int tiles = k_tiles(params.k);
  // A group is closed even when no tile is left to copy, because waits count groups.
  const auto start_copy = [&](int tile) {
    if (tile < tiles) operands.start_copy(tile % pipeline_stages, tile);
    cp_async_commit_group();
  };

  WarpSums sums;
  sums.clear();
  for (int tile = 0; tile < pipeline_stages - 1; ++tile) start_copy(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait_group<pipeline_stages - 2>();  // mutate: MatmulWaitForTheTile
    __syncthreads();                             // mutate: MatmulNoBarrierBeforeTheTile
    start_copy(tile + pipeline_stages - 1);
    const int stage = tile % pipeline_stages;
    const MatrixLoads<Tiles> loads(operands.a_tile(stage), operands.b_tile(stage));
#pragma unroll
    for (int step = 0; step < steps_per_tile; ++step) {
      Fragments fragments;
      loads.load(fragments, step);
      multiply<Element>(sums, fragments);
    }
  }
  store_c<Element>(params, sums);
}

}  // namespace jit::matmul
