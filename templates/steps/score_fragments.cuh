// Which scores a thread holds, in accumulators of mma.sync and wgmma alike.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Calls f(score, q, k) for each score that the thread holds, whose first one is that of query `q` and key
/// `k`: rows q and q + 8 of each 16, columns k and k + 1 of each 8.
template <int row_blocks, int score_blocks, class F>
__device__ __forceinline__ void for_each_score(float (&scores)[row_blocks][score_blocks][4], int q, int k,
                                               F f) {
#pragma unroll
  for (int m = 0; m < row_blocks; ++m) {
#pragma unroll
    for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) f(scores[m][n][i], q + m * 16 + i / 2 * 8, k + n * 8 + i % 2);
    }
  }
}

}  // namespace jit
