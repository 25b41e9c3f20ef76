// Scores of queries that lists of keys have put together (backward/listed_queries.cuh): each asks mask and score for itself.
#pragma once

#include "backward/listed_queries.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/row_mask.cuh"
#include "problem/scores.cuh"
#include "ptx/math.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wgmma {

/// Applies the score functor to products whose rows are keys from the lane's `key` on and whose columns are rows of a tile from
/// `first_row` on, multiplies `weights` by f′, and drops what the mask does. Positions of rows lie at shared address `rows`;
/// `context_of` tells the context of one of the heads that share keys.
template <class Config, bool is_partial, class Product, class ContextOf>
JIT_DEVICE void differentiate_listed(Product& scores, Product& weights, int key, unsigned rows, int first_row,
                                     float scale, const ContextOf& context_of) {
  using Score = typename Config::Score;
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::pair; ++i) {
      const int row = MmaLayout::column(first_row, n, i), position = load_shared(rows + row * 4);
      const BlockContext context = context_of(row % Config::gqa_ratio);
      const int query = maximum(position, 0);
      const RowMask<typename Config::Mask> mask(context, query);
      const Score score(context);
#pragma unroll
      for (int r = 0; r < Product::rows; ++r) {
        const int own_key = MmaLayout::row(key, r / 2, r % 2);
        float& s = scores.at(r, n, i);
        if constexpr (!Score::is_identity) {
          const Dual applied =
              score.apply(Dual(s * scale, 1.0f), query, minimum(own_key, context.seqlen_kv - 1));
          s = applied.value;
          weights.at(r, n, i) *= applied.derivative;  // mutate: SlopesOfListedRows
        }
        if (is_partial && !(position != no_query && own_key < context.seqlen_kv && mask.keeps(own_key)))
          s = negative_infinity();  // mutate: ListedRowsUnmasked
      }
    }
  }
}

}  // namespace jit::backward_wgmma
