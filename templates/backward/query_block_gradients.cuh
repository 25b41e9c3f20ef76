// Further outputs of dQ kernels: statistics of their queries, which the kernel of dK and dV reads, and large rows.
#pragma once

#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "steps/large_row_gradients.cuh"
#include "steps/large_rows.cuh"
#include "steps/query_statistics.cuh"

namespace jit {

/// Writes dq of the large rows among a warp's `count` queries, over the stored rows.
template <class Config>
JIT_DEVICE void write_large_rows(const AttentionParams& params, const GradientParams& gradient_params,
                                 const SequencesOf<Config>& sequences, int batch, int head, int first_query,
                                 int count) {
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const LargeRows<Config> rows(params, gradient_params, sequences, batch, head);
  __syncwarp();  // rows are overwritten, and delta is read  // mutate: LargeRowsOfDqAreOverwritten
#pragma unroll 1
  for (int query = first_query; query < first_query + count; ++query) {
    if (!is_large_lse(*sequences.lse_rows(batch, head).at(query))) continue;
    const RowOrigin origin =
        find_origin(rows, query, gradients.origins(batch, head) + query, gradient_params.large_rows);
    if (!is_large_row(origin)) continue;  // its row is 0 as it is
    write_large_row<Config>(params, rows, query, origin, gradients.delta(batch, head)[query],
                            gradients.dq_rows(batch, head).at(query));
  }
}

/// Writes the statistics of the rows of a warp's scores for the kernel of dK and dV, unless another warp `writes` them, and
/// returns them.
template <class Config, class Scores>
JIT_DEVICE auto write_query_statistics(const SequencesOf<Config>& sequences,
                                       const Gradients<Config>& gradients, const DropoutParams& dropout,
                                       int batch, int head, int first_query, bool writes = true) {
  const long long places = statistic_rows(sequences.q(batch).length);
  float* const lse_log2 = gradients.lse_log2(batch, head);
  float* const delta = gradients.delta(batch, head);
  RowOrigin* const origins = gradients.origins(batch, head);
  return query_statistics<Config, Scores>(sequences, gradients, dropout, batch, head, first_query,
                                          [&](int query, float own_lse, float own_delta, bool is_large) {
                                            if (query >= places || !writes) return;
                                            lse_log2[query] = own_lse;
                                            delta[query] = own_delta;
                                            if (own_lse == -negative_infinity() && !is_large)
                                              origins[query] = no_origin();
                                          });
}

}  // namespace jit
