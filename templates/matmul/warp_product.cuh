// A warp's 64 × 64 elements of C: four by eight blocks of mma.sync.m16n8k16, which stay in registers to the end.
#pragma once

#include "base/prelude.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "tiles/accumulator.cuh"

namespace jit::matmul {

using WarpSums = Accumulator<MmaLayout, WarpTiles::warp_m, WarpTiles::warp_n>;

/// Steps of 16 columns in a tile along k.
inline constexpr int steps_per_tile = WarpTiles::k / 16;

/// The first row of A's tile, and of B's, that the warp multiplies.
__device__ __forceinline__ int warp_row() { return warp_id() / WarpTiles::warps_n * WarpTiles::warp_m; }
__device__ __forceinline__ int warp_column() { return warp_id() % WarpTiles::warps_n * WarpTiles::warp_n; }

/// The warp's operands of one step of 16 columns, as mma.sync takes them.
struct Fragments {
  unsigned a[WarpSums::row_blocks][4];
  unsigned b[WarpSums::column_blocks][2];
};

/// 32 products, 16 × 8 × 16 each: 32 registers of operands for 65,536 multiply-adds of the warp.
template <class Element>
__device__ __forceinline__ void multiply(WarpSums& sums, const Fragments& fragments) {
#pragma unroll
  for (int m = 0; m < WarpSums::row_blocks; ++m) {
#pragma unroll
    for (int n = 0; n < WarpSums::column_blocks; ++n)
      mma_m16n8k16<Element>(sums.registers[m][n], fragments.a[m], fragments.b[n][0], fragments.b[n][1]);
  }
}

/// Calls f(row, column, two neighbours of that row) for the lane's elements of C.
template <class F>
__device__ __forceinline__ void for_each_pair(const WarpSums& sums, F f) {
  const int first_row = blockIdx.y * WarpTiles::m + warp_row() + MmaLayout::lane_row(threadIdx.x);
  const int first_column = blockIdx.x * WarpTiles::n + warp_column() + MmaLayout::lane_column(threadIdx.x);
#pragma unroll
  for (int r = 0; r < WarpSums::rows; ++r) {
#pragma unroll
    for (int n = 0; n < WarpSums::column_blocks; ++n)
      f(MmaLayout::row(first_row, r / 2, r % 2), MmaLayout::column(first_column, n, 0), sums.at(r, n, 0),
        sums.at(r, n, 1));
  }
}

/// Rounds the sums and writes them to C.
template <class Element>
__device__ __forceinline__ void store_c(const MatmulParams& params, const WarpSums& sums) {
  for_each_pair(sums, [&](int row, int column, float first, float second) {
    if (row >= params.m || column >= params.n) return;  // mutate: MatmulStoresBehindTheLastRow
    Element* const target = static_cast<Element*>(params.c) + row * params.c_stride + column;
    const unsigned pair = pack<Element>(first, second);
    if (column + 1 < params.n) {
      *reinterpret_cast<unsigned*>(target) = pair;
    } else {
      target->bits = static_cast<unsigned short>(pair);
    }
  });
}

}  // namespace jit::matmul
