// Step 3: ldmatrix and a swizzle. A load takes four matrices at once: 8 instructions instead of 32 for each 32 products.
// Chunk c of row r lies at chunk c XOR (r mod 8), so that the eight rows of a matrix lie in eight different groups of
// banks: no load takes more turns than it must, and no byte is padding.
//
//     for each tile along k:  copy A and B ─ barrier ─ 4 × (8 ldmatrix, 32 mma.sync) per warp ─ barrier
#pragma once

#include "base/prelude.cuh"
#include "matmul/matrix_loads.cuh"
#include "matmul/operands.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "matmul/warp_product.cuh"
#include "tiles/swizzled_tile.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::matmul {

template <class Config>
__device__ __forceinline__ void multiply_ldmatrix(const MatmulParams& params) {
  using Element = typename Config::Element;
  using Tiles = Operands<SmemTile, Element>;
  extern __shared__ __align__(128) unsigned char smem[];
  const Tiles operands(params, smem_address(smem));

  WarpSums sums;
  sums.clear();
  for (int tile = 0; tile < k_tiles(params.k); ++tile) {
    operands.copy(0, tile);
    __syncthreads();
    const MatrixLoads<Tiles> loads(operands.a_tile(0), operands.b_tile(0));
#pragma unroll
    for (int step = 0; step < steps_per_tile; ++step) {
      Fragments fragments;
      loads.load(fragments, step);
      multiply<Element>(sums, fragments);
    }
    __syncthreads();
  }
  store_c<Element>(params, sums);
}

}  // namespace jit::matmul
