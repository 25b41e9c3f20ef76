// What a block does behind its rows of dK and dV where the call has large rows: it adds what these add to its keys.
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "steps/large_row_gradients.cuh"

namespace jit::backward_dkv_mma_sync {

/// To the block's tile of keys, which perhaps is nobody's. By all threads of each block.
template <class Config, bool has_dk, bool has_dv>
__device__ __forceinline__ void add_large_rows_to_keys(const AttentionParams& params,
                                                       const GradientParams& gradient_params, int batch,
                                                       int kv_head, int first_key) {
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const auto place = [&](int head, int query) {
    return gradients.lse_log2(batch, head) - gradient_params.lse_log2 + query;
  };
  __syncthreads();  // what is added to was stored by other warps  // mutate: LargeRowsAreAddedTooEarly
  const int end = minimum(first_key + Config::tile_kv, sequences.kv(batch).length);
  if (first_key >= 0)
    add_large_rows<Config, has_dk, has_dv>(params, gradient_params, sequences, batch, kv_head, first_key, end,
                                           place, 1);
  have_added_large_rows(gradient_params);
}

}  // namespace jit::backward_dkv_mma_sync
