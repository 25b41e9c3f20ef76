// Large rows: after its tiles of keys, a warp collects the reads of their scores, which were left out.
#pragma once

#include "backward_tensors/collector.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "steps/dropout.cuh"
#include "steps/large_row_gradients.cuh"
#include "steps/large_rows.cuh"
#include "steps/score_gradients.cuh"
#include "tiles/accumulator.cuh"

namespace jit::backward_tensors {

/// Collects the large rows among the 16 rows of a warp, whose delta these are.
template <class Config>
JIT_DEVICE void collect_large_rows(const AttentionParams& params, const GradientParams& gradient_params,
                                   const TensorSums& sums, const SequencesOf<Config>& sequences, int batch,
                                   int head, int first_query, const RowNumbers<2>& deltas,
                                   Collector<Config::gradient_slots>& collector) {
  const LargeRows<Config> rows(params, gradient_params, sequences, batch, head);
  const float scale = over_keep_probability<Config>(1, params.dropout);
#pragma unroll 1
  for (int row = 0; row < minimum(16, sequences.q(batch).length - first_query); ++row) {
    const int query = first_query + row;
    if (!is_large_lse(*sequences.lse_rows(batch, head).at(query)) || !rows.has_gradient(query)) continue;
    const float delta = __shfl_sync(full_warp, row < 8 ? deltas.numbers[0] : deltas.numbers[1], row % 8 * 4);
    const RowOrigin origin = rows.origin(query);
    const KeyRange keys = rows.keys(query);
#pragma unroll 1
    for (int key = keys.begin + lane_id(); key < keys.end; key += warp_size) {
      if (!rows.sees(query, key)) continue;
      const float p = rows.probability(rows.score(query, key).value, origin);
      if (p == 0) continue;
      const bool kept = keeps_score<Config>(params, batch, head, query, key);
      const float d_p = kept ? rows.d_probability(query, key) : 0.0f;
      const Dual s = rows.scaled_product(query, key).value;
      TensorReads<Config::gradient_slots> reads(gradient_params.tensors);
      const auto apply = [&] { return rows.functor().apply(s, query, key, reads); };
      const Dual applied = apply();
      collect_reads<Config>(collector, sums, reads, applied, p * scale * (d_p - delta), apply);
    }
  }
}

}  // namespace jit::backward_tensors
