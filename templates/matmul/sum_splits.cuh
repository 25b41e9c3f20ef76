// The second kernel of step 6: a thread adds the shares of one element of C.
#pragma once

#include "base/prelude.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "ptx/math.cuh"

namespace jit::matmul {

template <class Config>
__device__ __forceinline__ void sum_splits(const MatmulParams& params) {
  using Element = typename Config::Element;
  const int row = blockIdx.x, column = blockIdx.y * sum_threads + threadIdx.x;
  if (column >= params.n) return;
  const long long share = static_cast<long long>(params.m) * params.n;
  const float* const sums = params.partial_sums + static_cast<long long>(row) * params.n + column;
  float sum = 0;
  for (int split = 0; split < params.splits; ++split)
    sum += sums[split * share];  // mutate: MatmulSumsTheFirstShare
  Element* const c = static_cast<Element*>(params.c) + row * params.c_stride;
  c[column].bits = static_cast<unsigned short>(pack<Element>(sum, 0));
}

}  // namespace jit::matmul
