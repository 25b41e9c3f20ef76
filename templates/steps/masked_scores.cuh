// Dropping what a mask does not keep of a partial tile. The thread's first score is that of query `q` and key
// `k`; the others lie as in score_fragments.cuh.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Sets scores to −inf that lie outside of their rows' ranges. Relative to the thread's first key, columns
/// are constants: one comparison each, and one more where the compiler cannot see that rows begin with the
/// first key.
template <class Mask, int row_blocks, int score_blocks>
__device__ __forceinline__ void drop_outside_row_ranges(float (&scores)[row_blocks][score_blocks][4],
                                                        const Mask& mask, int last_query, int q, int k) {
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
          float& score = scores[m][n][2 * r + i];  // without branches, which take long to compile
          score = (column >= end) | (column < begin) ? negative_infinity() : score;
        }
      }
    }
  }
}

/// Sets scores to −inf that the mask drops, by its terms. `key_words` is the shared address of the words of
/// the thread's first key and of those behind it, if the mask has words.
template <class Mask, int row_blocks, int score_blocks>
__device__ __forceinline__ void drop_by_terms(float (&scores)[row_blocks][score_blocks][4], const Mask& mask,
                                              const BlockContext& context, int q, int k, unsigned key_words) {
  __builtin_assume(k >= 0);
  const int end = context.seqlen_kv - k;
#pragma unroll
  for (int m = 0; m < row_blocks; ++m) {
    const auto upper = query_term(mask, minimum(q + m * 16, context.seqlen_q - 1));
    const auto lower = query_term(mask, minimum(q + m * 16 + 8, context.seqlen_q - 1));
#pragma unroll
    for (int n = 0; n < score_blocks; ++n) {
      int words[2] = {};
      if constexpr (jit::key_words<Mask> == 1) load_shared(words, key_words + n * 8 * 4);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = n * 8 + i;
        float& above = scores[m][n][i];
        float& below = scores[m][n][2 + i];
        above = (column < end) & keeps(mask, upper, k + column, words[i]) ? above : negative_infinity();
        below = (column < end) & keeps(mask, lower, k + column, words[i]) ? below : negative_infinity();
      }
    }
  }
}

/// Bit 4 n + i tells whether the mask keeps score i of block n. `q` and `k` are those of the first block.
template <class Mask>
__device__ __forceinline__ unsigned kept_scores(const Mask& mask, const BlockContext& context, int blocks,
                                                int q, int k) {
  unsigned kept = 0;
#pragma unroll 1
  for (int n = 0; n < blocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = minimum(q + i / 2 * 8, context.seqlen_q - 1), key = k + n * 8 + i % 2;
      const bool is_kept = key < context.seqlen_kv && mask.keep(query, key);
      kept |= static_cast<unsigned>(is_kept) << (4 * n + i);
    }
  }
  return kept;
}

/// Sets scores to −inf that the mask drops or whose keys do not exist. Where the mask must be asked for each,
/// it is asked in a loop that leaves bits: a loop over scores would have to be unrolled, because registers
/// have no index, and be long.
template <class Mask, int row_blocks, int score_blocks>
__device__ __forceinline__ void drop_masked_scores(float (&scores)[row_blocks][score_blocks][4],
                                                   const Mask& mask, const BlockContext& context, int q,
                                                   int k, unsigned key_words) {
  if constexpr (has_row_range<Mask>) {
    drop_outside_row_ranges(scores, mask, context.seqlen_q - 1, q, k);
  } else if constexpr (has_terms<Mask>) {
    drop_by_terms(scores, mask, context, q, k, key_words);
  } else {
    constexpr int blocks_of_bits = 8;
#pragma unroll
    for (int m = 0; m < row_blocks; ++m) {
#pragma unroll
      for (int first = 0; first < score_blocks; first += blocks_of_bits) {
        const int blocks = minimum(blocks_of_bits, score_blocks - first);
        const unsigned kept = kept_scores(mask, context, blocks, q + m * 16, k + first * 8);
#pragma unroll
        for (int n = 0; n < blocks; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& score = scores[m][first + n][i];
            score = (kept >> (4 * n + i) & 1) != 0 ? score : negative_infinity();
          }
        }
      }
    }
  }
}

}  // namespace jit
