// Converts the sums of dQ to its rows (backward/convert_dq.cuh): a block has a tile of queries, and each of its
// warpgroups a part of the columns.
#pragma once

#include "backward/convert_dq.cuh"
#include "backward_wgmma/traits.cuh"
#include "problem/gradients.cuh"
#include "steps/dropout.cuh"
#include "steps/store_product.cuh"

namespace jit::backward_wgmma {

/// Stores part `part` of a tile whose first query is `first_query`, as a warpgroup holds it in registers: `thread` is
/// counted in that.
template <class Config>
JIT_DEVICE void store_dq_part(const AttentionParams& params,
                              const typename KernelTraits<Config>::QueryGradient& dq,
                              const DenseRows<OutputElement<Config>>& rows, int part, int thread,
                              int first_query, int row_end) {
  using Traits = KernelTraits<Config>;
  constexpr int columns = Traits::dq_columns;
  constexpr int parts = Traits::dq_parts;
  const int first_column = part * columns;
  const int first_row = first_query + thread / warp_size * 16;
  const float scale =
      over_keep_probability<Config>(params.softmax_scale, params.dropout);  // mutate: DqUnscaled
  constexpr int last_columns = Config::head_dim - (parts - 1) * columns;
  if (part + 1 < parts) {
    store_rows<columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  } else if constexpr (last_columns > 0) {
    store_rows<last_columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  }
}

/// By a block that has a tile of queries.
template <class Config>
JIT_DEVICE void convert_tile(const AttentionParams& params, const GradientParams& gradient_params) {
  using Traits = KernelTraits<Config>;
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const int row_end = sequences.q(batch).length;
  if (has_entry_lengths<Config> && (first_query < 0 || first_query >= row_end)) return;
  const int tile = first_query / Config::tile_q;
  const int part = threadIdx.x / warpgroup_size, thread = threadIdx.x % warpgroup_size;
  const float* const sums =
      dq_sums<Traits>(gradient_params, first_query_tile<Config>(params, sequences, batch, head) + tile) +
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
  store_dq_part<Config>(params, dq,
                        Gradients<Config>(params, gradient_params, sequences).dq_rows(batch, head), part,
                        thread, first_query, row_end);
}

template <class Config>
JIT_DEVICE void convert_dq(const AttentionParams& params, const GradientParams& gradient_params) {
  jit::convert_dq<KernelTraits<Config>>(params, gradient_params,
                                        [&] { convert_tile<Config>(params, gradient_params); });
}

}  // namespace jit::backward_wgmma
