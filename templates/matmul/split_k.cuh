// Step 6: split-K. A small C has fewer tiles than the GPU has multiprocessors. So several blocks share a tile: each adds
// its share of k and writes fp32 sums, and a second kernel adds the shares, always in the same order.
#pragma once

#include "base/prelude.cuh"
#include "matmul/double_buffer.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "matmul/warp_product.cuh"

namespace jit::matmul {

template <class Config>
__device__ __forceinline__ void multiply_split_k(const MatmulParams& params) {
  const int split = blockIdx.z;
  WarpSums sums;
  sums.clear();
  multiply_tiles<typename Config::Element>(sums, params, first_k_tile(params.k, params.splits, split),
                                           first_k_tile(params.k, params.splits, split + 1));
  float* const share = params.partial_sums + static_cast<long long>(split) * params.m * params.n;
  for_each_pair(sums, [&](int row, int column, float first, float second) {
    if (row >= params.m) return;
    float* const target = share + static_cast<long long>(row) * params.n + column;
    if (column < params.n) target[0] = first;
    if (column + 1 < params.n) target[1] = second;
  });
}

}  // namespace jit::matmul
