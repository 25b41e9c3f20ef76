// What a warp does behind its rows of dQ: those of large rows, which were left out, are written anew, and their origins are
// left to the kernel of dK and dV.
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "steps/large_row_gradients.cuh"
#include "steps/large_rows.cuh"

namespace jit::backward_dq_mma_sync {

/// Of the warp's queries.
template <class Config>
__device__ __forceinline__ void write_large_rows(const AttentionParams& params,
                                                 const GradientParams& gradient_params,

                                                 const SequencesOf<Config>& sequences, int batch, int head,
                                                 int first_query, int count) {
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

}  // namespace jit::backward_dq_mma_sync
