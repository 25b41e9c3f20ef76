// Step 1: tiles in shared memory. A thread computes one element of C. The block copies a tile of A and a tile of B to
// shared memory, so that each element that comes from global memory is used 32 times.
//
//     for each tile along k:  copy A and B ─ barrier ─ 32 multiply-adds per thread ─ barrier
#pragma once

#include "base/prelude.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "ptx/math.cuh"

namespace jit::matmul {

template <class Config>
__device__ __forceinline__ void multiply_smem_tiles(const MatmulParams& params) {
  using Tiles = ThreadTiles;
  using Element = typename Config::Element;
  // Lanes read 32 rows of B's tile at once. Rows of 17 words, an odd number, begin in different banks.
  constexpr int padding = 2;
  __shared__ Element a_tile[Tiles::m][Tiles::k];
  __shared__ Element b_tile[Tiles::n][Tiles::k + padding];
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  const int row = blockIdx.y * Tiles::m + y, column = blockIdx.x * Tiles::n + x;
  const int b_row = blockIdx.x * Tiles::n + y;
  const auto* a = static_cast<const Element*>(params.a) + row * params.a_stride;
  const auto* b = static_cast<const Element*>(params.b) + b_row * params.b_stride;

  float sum = 0;
  for (int k_begin = 0; k_begin < params.k; k_begin += Tiles::k) {
    const int k = k_begin + x;
    a_tile[y][x] = row < params.m && k < params.k ? a[k] : Element{};
    b_tile[y][x] = b_row < params.n && k < params.k ? b[k] : Element{};
    __syncthreads();  // mutate: MatmulReadsBeforeTheTileIsThere
    for (int i = 0; i < Tiles::k; ++i) sum += to_float(a_tile[y][i]) * to_float(b_tile[x][i]);
    __syncthreads();  // mutate: MatmulTileIsOverwrittenEarly
  }
  if (row < params.m && column < params.n)
    static_cast<Element*>(params.c)[row * params.c_stride + column].bits =
        static_cast<unsigned short>(pack<Element>(sum, 0));
}

}  // namespace jit::matmul
