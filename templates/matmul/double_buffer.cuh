// Step 5: double buffering in registers. A warp loads the fragments of the next 16 columns while tensor cores multiply
// those at hand, as cp.async fetches the next tiles meanwhile: shared memory is a pipeline of two stages, too.
//
//     load step 0 of tile 0
//     for each step:  [at the end of a tile: wait for the next one ─ barrier] ─ ldmatrix of the next step ─ mma.sync
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

/// Adds the products of the tiles along k from `begin` to `end`.
template <class Element>
__device__ __forceinline__ void multiply_tiles(WarpSums& sums, const MatmulParams& params, int begin,
                                               int end) {
  using Tiles = Operands<SmemTile, Element>;
  extern __shared__ __align__(128) unsigned char smem[];
  const Tiles operands(params, smem_address(smem));
  const auto start_copy = [&](int tile) {
    if (tile < end) operands.start_copy((tile - begin) % pipeline_stages, tile);
    cp_async_commit_group();
  };
  const auto loads_of = [&](int tile) {
    const int stage = (tile - begin) % pipeline_stages;
    return MatrixLoads<Tiles>(operands.a_tile(stage), operands.b_tile(stage));
  };
  // Makes a tile readable: afterwards the stage of the tile before it may be overwritten.
  const auto wait_for_tile = [] {
    cp_async_wait_group<pipeline_stages - 2>();  // mutate: MatmulWaitForTheNextTile
    __syncthreads();                             // mutate: MatmulNoBarrierBeforeTheNextTile
  };

  if (begin >= end) return;
  for (int ahead = 0; ahead < pipeline_stages - 1; ++ahead) start_copy(begin + ahead);
  wait_for_tile();
  Fragments fragments[2];
  loads_of(begin).load(fragments[0], 0);
  for (int tile = begin; tile < end; ++tile) {
    start_copy(tile + pipeline_stages - 1);
    const MatrixLoads<Tiles> loads = loads_of(tile);
#pragma unroll
    for (int step = 0; step < steps_per_tile; ++step) {
      Fragments& next = fragments[(step + 1) % 2];  // mutate: MatmulOverwritesTheFragments
      if (step + 1 < steps_per_tile) {
        loads.load(next, step + 1);
      } else if (tile + 1 < end) {
        wait_for_tile();
        loads_of(tile + 1).load(next, 0);
      }
      multiply<Element>(sums, fragments[step % 2]);
    }
  }
}

template <class Config>
__device__ __forceinline__ void multiply_double_buffer(const MatmulParams& params) {
  using Element = typename Config::Element;
  WarpSums sums;
  sums.clear();
  multiply_tiles<Element>(sums, params, 0, k_tiles(params.k));
  store_c<Element>(params, sums);
}

}  // namespace jit::matmul
