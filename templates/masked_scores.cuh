// Dropping what a mask does not keep of a partial tile.
#pragma once

#include "functor.cuh"
#include "masks.cuh"
#include "prelude.cuh"
#include "score_fragments.cuh"

namespace jit {

/// Sets scores to −inf that the mask drops or whose keys do not exist. The thread's first score is that of
/// query `q` and key `k`.
template <class Mask, int row_blocks, int score_blocks>
__device__ __forceinline__ void drop_masked_scores(float (&scores)[row_blocks][score_blocks][4],
                                                   const Mask& mask, const BlockContext& context, int q,
                                                   int k) {
  const int last_query = context.seqlen_q - 1;
  if constexpr (has_row_range<Mask>) {
    // Relative to the thread's first key, columns are constants: one comparison each, and one more where the
    // compiler cannot see that rows begin with the first key.
    __builtin_assume(k >= 0);
#pragma unroll
    for (int m = 0; m < row_blocks; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const KeyRange range = mask.row_range(minimum(q + m * 16 + r * 8, last_query));
        const int begin = range.begin - k, end = range.end - k;
#pragma unroll
        for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int column = n * 8 + i;
            if (column >= end || column < begin) scores[m][n][2 * r + i] = negative_infinity();
          }
        }
      }
    }
  } else {
    for_each_score(scores, q, k, [&](float& s, int query, int key) {
      if (key >= context.seqlen_kv || !mask.keep(minimum(query, last_query), key)) s = negative_infinity();
    });
  }
}

}  // namespace jit
