// Step 2: tensor cores. A block computes 128 × 128 elements of C by four warps, and mma.sync multiplies 16 × 8 × 16
// elements in one instruction. Operands come from shared memory word by word, as the table in ptx/mma.cuh says.
//
//     for each tile along k:  copy A and B ─ barrier ─ 4 × (32 loads, 32 mma.sync) per warp ─ barrier
//
// Rows of a tile lie one behind another, 128 bytes each, as many as the banks serve at once. The eight rows that a load
// reads therefore meet in the same four banks, and the load takes eight turns instead of one.
#pragma once

#include "base/prelude.cuh"
#include "matmul/operands.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "matmul/warp_product.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::matmul {

/// A tile whose chunks lie in the order of rows and columns.
template <int tile_rows, int tile_chunks>
struct RowMajorTile {
  static constexpr int rows = tile_rows;
  static constexpr int chunks = tile_chunks;
  static constexpr int row_bytes = chunks * chunk_bytes;
  static constexpr int bytes = rows * row_bytes;

  static __device__ __forceinline__ constexpr int offset(int row, int chunk) {
    return row * row_bytes + chunk * chunk_bytes;
  }
};

/// The fragments of step `step`, a word at a time. A chunk has eight columns, and each lane of a quad has two of them.
template <class Operands>
__device__ __forceinline__ void load_words(Fragments& fragments, unsigned a_tile, unsigned b_tile, int step) {
  const int row = lane_id() / 4, word = lane_id() % 4 * 4;
#pragma unroll
  for (int m = 0; m < WarpSums::row_blocks; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      fragments.a[m][i] = load_shared(
          a_tile + Operands::ATile::offset(warp_row() + 16 * m + row + i % 2 * 8, 2 * step + i / 2) + word);
  }
#pragma unroll
  for (int n = 0; n < WarpSums::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      fragments.b[n][i] =
          load_shared(b_tile + Operands::BTile::offset(warp_column() + 8 * n + row, 2 * step + i) + word);
  }
}

template <class Config>
__device__ __forceinline__ void multiply_tensor_cores(const MatmulParams& params) {
  using Element = typename Config::Element;
  using Tiles = Operands<RowMajorTile, Element>;
  extern __shared__ __align__(128) unsigned char smem[];
  const Tiles operands(params, smem_address(smem));

  WarpSums sums;
  sums.clear();
  for (int tile = 0; tile < k_tiles(params.k); ++tile) {
    operands.copy(0, tile);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < steps_per_tile; ++step) {
      Fragments fragments;
      load_words<Tiles>(fragments, operands.a_tile(0), operands.b_tile(0), step);
      multiply<Element>(sums, fragments);
    }
    __syncthreads();
  }
  store_c<Element>(params, sums);
}

}  // namespace jit::matmul
