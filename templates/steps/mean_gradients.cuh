// The mean of a row's scores, M = Σ P s, has a gradient that adds to those of scores: dS += P ∘ (1 + s − M) dM. All but s is
// the row's own, and part of its delta (steps/query_statistics.cuh).
#pragma once

#include "base/dropout_params.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "steps/product_numbers.cuh"
#include "steps/score_gradients.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Gradients of the means of queries' scores, as numbers of rows of a product, or of its columns: those of queries are rows of
/// one and columns of the other.
template <class Config, class Product>
JIT_DEVICE auto row_mean_gradients(const Gradients<Config>& gradients, const DropoutParams& dropout,
                                   int batch, int head, int first_query, int seqlen_q) {
  RowNumbers<Product::rows> numbers = {};
  Product::for_each_row(first_query, [&](int r, int query) {
    if (query < seqlen_q) numbers.numbers[r] = gradients.d_mean(batch, head, query);
    if constexpr (has_dropout<Config>) numbers.numbers[r] *= dropout.keep_probability;
  });
  return numbers;
}
template <class Config>
struct ColumnMeanGradients {
  const Gradients<Config>& gradients;
  const DropoutParams& dropout;
  int batch;
  int head;
  int first_query;  ///< of the lane's first column
  int seqlen_q;

  struct Pair {
    float numbers[2];
    JIT_DEVICE float of(int /*r*/, int i) const { return numbers[i]; }
  };
  JIT_DEVICE Pair at(int n) const {
    Pair pair;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = MmaLayout::column(first_query, n, i);
      pair.numbers[i] = query < seqlen_q ? gradients.d_mean(batch, head, query) : 0;
      if constexpr (has_dropout<Config>) pair.numbers[i] *= dropout.keep_probability;
    }
    return pair;
  }
};

/// Adds the part of dS / P that each score has in the mean of its row, times the mean's gradient: the rest is that of the row's
/// delta. Before f′ is applied.
template <class Axes, class Score, class Product, class Numbers>
JIT_DEVICE void add_mean_gradients(Product& d_scores, const Product& scores, const Numbers& d_means, int row,
                                   int column, const Score& score, float scale, const BlockContext& context) {
  Product values = scores;
  apply_score<Axes>(values, row, column, score, scale, context);
  with_numbers(d_scores, d_means, [&](float& d_score, float d_mean, int r, int n, int i) {
    const float s = Score::is_identity ? values.at(r, n, i) * scale : values.at(r, n, i);
    d_score = __fmaf_rn(d_mean, s, d_score);  // mutate: MeanWithoutItsScores
  });
}

}  // namespace jit
