// Statistics of each query (LSE and delta) for backward, computed by a warp for the queries of its rows.
#pragma once

#include "base/dropout_params.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "steps/dropout.cuh"
#include "steps/score_gradients.cuh"

namespace jit {

/// Statistics of the queries of which a lane holds scores.
template <int rows>
struct QueryStatistics {
  RowNumbers<rows>
      lse_log2;  ///< log2 Σ exp(score); +inf for a query without keys, or one that does not exist
  /// do · o − dlse. With dropout, gradients of scores are computed times the share that is kept, and so is this.
  RowNumbers<rows> delta;
  bool has_large;  ///< whether some query of the warp is a large row (steps/large_rows.cuh)
};

/// Computes the statistics of the rows of `Product`, the first of which is `first_query`. One lane calls
/// `write(query, lse_log2, delta, is_large)` for each row.
template <class Config, class Product, class Write>
JIT_DEVICE auto query_statistics(const SequencesOf<Config>& sequences, const Gradients<Config>& gradients,
                                 const DropoutParams& dropout, int batch, int head, int first_query,
                                 const Write& write) {
  using Layout = typename Product::Layout;
  constexpr int piece = ElementTraits<typename Config::Element>::per_chunk;
  const int seqlen_q = sequences.q(batch).length, lane = lane_id();
  const auto do_rows = gradients.do_rows(batch, head);
  const auto o_rows = sequences.output_rows(batch, head);
  const auto lse_rows = sequences.lse_rows(batch, head);

  QueryStatistics<Product::rows> statistics;
  bool has_large = false;
  Product::for_each_row(first_query + Layout::lane_row(lane), [&](int r, int query) {
    float sum = 0, lse = negative_infinity();
    if (query < seqlen_q) {
      lse = *lse_rows.at(query);
      // The four lanes that share a row take its pieces in turns.
      for (int d = lane % 4 * piece; d < Config::head_dim_v; d += 4 * piece) {
        float x[piece], y[piece];
        load_piece<Config::alignment>(do_rows.at(query) + d, x);
        load_piece<Config::alignment>(o_rows.at(query) + d, y);
#pragma unroll
        for (int i = 0; i < piece; ++i) sum = __fmaf_rn(x[i], y[i], sum);  // mutate: DeltaOfStatisticsLeftOut
      }
    }
    sum = Layout::reduce(sum, [](float x, float y) { return x + y; });
    if (lse != negative_infinity()) sum -= gradients.d_lse(batch, head, query);  // mutate: NoGradientOfLse
    if constexpr (has_mean_score<Config>) {
      if (lse != negative_infinity())
        sum -= gradients.d_mean_of_delta(batch, head, query);  // mutate: MeanLeftOutOfDelta
    }
    if constexpr (has_dropout<Config>) sum *= dropout.keep_probability;  // mutate: DeltaUnscaled
    const bool is_large = is_large_lse(lse);
    lse = lse_exponent(lse);
    has_large |= is_large;
    statistics.lse_log2.numbers[r] = lse;
    statistics.delta.numbers[r] = sum;
    if (Layout::is_row_leader(lane)) write(query, lse, sum, is_large);
  });
  statistics.has_large = __any_sync(full_warp, has_large);
  return statistics;
}

}  // namespace jit
