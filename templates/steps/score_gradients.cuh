// From products to probabilities and gradients of scores, in registers: with s the raw score, f the score functor and
// LSE that of the forward pass,
//
//     P = exp(f(s) − LSE)      dS = P ∘ (dP − delta) ∘ f′(s)
//
// The accumulators of dP begin at −delta, so that the difference costs nothing ("FlashAttention-2", Dao, has the
// formulas; ThunderKittens begins sums so).
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/math.cuh"
#include "steps/product_axes.cuh"
#include "steps/product_numbers.cuh"
#include "steps/whole_positions.cuh"

namespace jit {

/// The accumulators of dP before their product is added: −delta.
template <class Product, class Numbers>
JIT_DEVICE void begin_at_minus(Product& product, const Numbers& numbers) {
  with_numbers(product, numbers, [](float& value, float number, int, int, int) { value = -number; });
}

/// Calls f(r, n, i, query, key) for each value of a lane, the first of which lies at `row` and `column`.
template <class Axes, class Product, class F>
JIT_DEVICE void for_each_place(int row, int column, F f) {
  using Layout = typename Product::Layout;
  Product::for_each_place([&](int r, int n, int i) {
    const int at_row = Layout::row(row, r / 2, r % 2), at_column = Layout::column(column, n, i);
    f(r, n, i, Axes::query(at_row, at_column), Axes::key(at_row, at_column));
  });
}

/// Leaves f(s) of products s / scale, in place of them; an identity is left to `exponentiate_scores`.
template <class Axes, class Product, class Score>
JIT_DEVICE void apply_score(Product& scores, int row, int column, const Score& score, float scale,
                            const BlockContext& context) {
  if constexpr (is_positioned<Score>) {
    apply_by_positions<Axes, Score>(
        scores, row, column, context,
        [&](float& s, const auto& apply, int, int, int) { s = apply(Dual(s * scale)).value; });
  } else if constexpr (!Score::is_identity) {
    for_each_place<Axes, Product>(row, column, [&](int r, int n, int i, int q, int k) {
      float& s = scores.at(r, n, i);
      s = score.apply(Dual(s * scale), minimum(q, context.seqlen_q - 1), minimum(k, context.seqlen_kv - 1))
              .value;
    });
  }
}

/// Applies the score functor, and multiplies `d_scores` by f′(s). With `are_all_there` all queries and keys exist and
/// are not clamped, so that a lane's indices differ by constants.
template <class Axes, bool are_all_there = false, class Product, class Score>
JIT_DEVICE void differentiate_score(Product& scores, Product& d_scores, int row, int column,
                                    const Score& score, float scale, const BlockContext& context) {
  if constexpr (is_positioned<Score>) {
    apply_by_positions<Axes, Score>(scores, row, column, context,
                                    [&](float& s, const auto& apply, int r, int n, int i) {
                                      const Dual applied = apply(Dual(s * scale, 1.0f));
                                      s = applied.value;
                                      d_scores.at(r, n, i) *= applied.derivative;
                                    });
  } else if constexpr (!Score::is_identity) {
    for_each_place<Axes, Product>(row, column, [&](int r, int n, int i, int q, int k) {
      float& s = scores.at(r, n, i);
      const Dual applied =
          score.apply(Dual(s * scale, 1.0f), are_all_there ? q : minimum(q, context.seqlen_q - 1),
                      are_all_there ? k : minimum(k, context.seqlen_kv - 1));
      s = applied.value;
      d_scores.at(r, n, i) *= applied.derivative;  // mutate: NoDerivativeOfTheScore
    });
  }
}

/// drop_masked_scores() of a mask with terms: asks once for each query and each key, and without a branch, so that what it
/// reads of them is on its way together.
template <class Axes, class Product, class Mask>
JIT_DEVICE void drop_scores_by_terms(Product& scores, int row, int column, const Mask& mask,
                                     const BlockContext& context) {
  using Layout = typename Product::Layout;
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::pair; ++i) {
      const int at_column = Layout::column(column, n, i);
#pragma unroll
      for (int r = 0; r < Product::rows; ++r) {
        const int at_row = Layout::row(row, r / 2, r % 2);
        const int q = Axes::query(at_row, at_column), k = Axes::key(at_row, at_column);
        const auto term = query_term(mask, minimum(q, context.seqlen_q - 1));
        const int word = mask.key_word(minimum(k, context.seqlen_kv - 1));
        const bool exists = (q < context.seqlen_q) & (k < context.seqlen_kv);
        float& score = scores.at(r, n, i);
        score = exists & keeps(mask, term, k, word) ? score : negative_infinity();
      }
    }
  }
}

/// Which of a lane's 32 scores a mask with terms keeps, a bit for each in the order of their registers. Keys that do not
/// exist have none; nor do queries that do not, if `all_exist` is false. Else these are taken for the last one, since their
/// LSE is +∞: finite scores have no weight. Needs no scores: it is asked before the wait for their product.
template <class Axes, class Product, bool all_exist, class Mask>
JIT_DEVICE unsigned kept_word(int row, int column, const Mask& mask, const BlockContext& context) {
  using Layout = typename Product::Layout;
  static_assert(is_same<Axes, KeysByQueries> && Product::rows == 2 && Product::column_blocks == 8);
  int words[Product::rows];
#pragma unroll
  for (int r = 0; r < Product::rows; ++r)
    words[r] = mask.key_word(minimum(Layout::row(row, r / 2, r % 2), context.seqlen_kv - 1));
  unsigned kept = 0;
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::pair; ++i) {
      const auto term = query_term(mask, minimum(Layout::column(column, n, i), context.seqlen_q - 1));
#pragma unroll
      for (int r = 0; r < Product::rows; ++r) {
        if (keeps(mask, term, Layout::row(row, r / 2, r % 2), words[r]) &&
            (all_exist || Layout::column(column, n, i) < context.seqlen_q))
          kept |= 1u << (n * Layout::block_values + r * Product::pair + i);
      }
    }
  }
  constexpr unsigned lower_rows = 0xcccccccc;  // bits of the second of a lane's two rows
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
    if (Layout::row(row, r / 2, r % 2) >= context.seqlen_kv) kept &= r == 0 ? lower_rows : ~lower_rows;
  }
  return kept;
}

/// Sets scores to −inf that the mask drops, or whose query or key does not exist.
template <class Axes, class Product, class Mask>
JIT_DEVICE void drop_masked_scores(Product& scores, int row, int column, const Mask& mask,
                                   const BlockContext& context) {
  if constexpr (is_positioned<Mask>) {
    drop_by_positions<Axes, Mask>(scores, row, column, context);
  } else if constexpr (key_words<Mask> == 1) {
    drop_scores_by_terms<Axes>(scores, row, column, mask, context);
  } else {
    for_each_place<Axes, Product>(row, column, [&](int r, int n, int i, int q, int k) {
      if (q >= context.seqlen_q || k >= context.seqlen_kv || !mask.keep(q, k))
        scores.at(r, n, i) = negative_infinity();
    });
  }
}

/// The factor that makes exponents of 2 of the scores that `apply_score` leaves.
template <class Score>
JIT_DEVICE float score_exponent(float softmax_scale) {
  return Score::is_identity ? softmax_scale * log2_e : log2_e;
}

/// Scores become probabilities: 2 to the power of score · factor − lse_log2.
template <class Product, class Numbers>
JIT_DEVICE void exponentiate_scores(Product& scores, float factor, const Numbers& lse_log2) {
  with_numbers(scores, lse_log2,
               [&](float& score, float lse, int, int, int) { score = ex2(__fmaf_rn(score, factor, -lse)); });
}

/// (dP − delta) ∘ f′ becomes dS. A key that is not seen has none, whatever a functor's derivative is there.
template <class Score, class Product>
JIT_DEVICE void multiply_by_probabilities(Product& d_scores, const Product& probabilities) {
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
      for (int i = 0; i < Product::pair; ++i) {
        const float p = probabilities.at(r, n, i);
        float& ds = d_scores.at(r, n, i);
        ds = Score::is_identity || p > 0 ? p * ds : 0;
      }
    }
  }
}

}  // namespace jit
