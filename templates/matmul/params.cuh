// The parameters of a matrix product C = A Bᵀ. Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"

namespace jit {

struct MatmulParams {
  const void* a;        ///< (m, k)
  const void* b;        ///< (n, k)
  void* c;              ///< (m, n)
  float* partial_sums;  ///< (splits, m, n), dense; only split-K has them
  long long a_stride;   ///< elements from a row to the next one; rows begin at multiples of 16 bytes
  long long b_stride;
  long long c_stride;
  int m;
  int n;
  int k;
  int splits;  ///< shares of k
};

}  // namespace jit
