// What runs behind the one-pass kernel: the sums of dQ, scaled and rounded, become its rows. A block has a tile of
// queries, and a warpgroup of it a part of their columns.
#pragma once

#include "backward_wgmma/dq_rows.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "steps/dropout.cuh"

namespace jit::backward_wgmma {

template <class Config>
__device__ __forceinline__ void convert_dq(const AttentionParams& params,
                                           const GradientParams& gradient_params) {
  using Traits = KernelTraits<Config>;
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const int row_end = sequences.q(batch).length;
  if (has_entry_lengths<Config> && (first_query < 0 || first_query >= row_end)) return;
  const int tile = first_query / Config::tile_q;
  const int part = threadIdx.x / warpgroup_size, thread = threadIdx.x % warpgroup_size;
  const float* const sums =
      dq_sums<Config>(gradient_params, first_query_tile<Config>(params, sequences, batch, head) + tile) +
      part * Traits::dq_part_floats;
  typename Traits::QueryGradient dq;
#pragma unroll
  for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n) {
    const float4 four = *reinterpret_cast<const float4*>(sums + (n * warpgroup_size + thread) * 4);
    dq.registers[0][n][0] = four.x;
    dq.registers[0][n][1] = four.y;
    dq.registers[0][n][2] = four.z;
    dq.registers[0][n][3] = four.w;
  }
  store_dq_part<Config>(params, params.dropout, dq,
                        Gradients<Config>(params, gradient_params, sequences).dq_rows(batch, head), part,
                        thread, first_query, row_end);
}

}  // namespace jit::backward_wgmma
