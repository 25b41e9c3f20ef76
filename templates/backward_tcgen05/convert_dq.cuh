// The sums of dQ become its rows (backward/convert_dq.cuh): a block has a tile of queries, a thread of it a query and some
// parts of the columns, as the dQ warps left them.
#pragma once

#include "backward/convert_dq.cuh"
#include "backward_tcgen05/traits.cuh"
#include "base/row_pieces.cuh"
#include "problem/gradients.cuh"

namespace jit::backward_tcgen05 {

/// By a block that has a tile of queries.
template <class Config>
JIT_DEVICE void convert_tile(const AttentionParams& params, const GradientParams& gradient_params) {
  using Traits = KernelTraits<Config>;
  constexpr int piece = 8;
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const int row = static_cast<int>(threadIdx.x) % tile_q, query = first_query + row;
  if (first_query < 0 || query >= sequences.q(batch).length) return;
  const float* const sums = dq_sums<Traits>(
      gradient_params, first_query_tile<Config>(params, sequences, batch, head) + first_query / tile_q);
  auto* const target = Gradients<Config>(params, gradient_params, sequences).dq_rows(batch, head).at(query);
#pragma unroll 2
  for (int column = static_cast<int>(threadIdx.x) / tile_q * piece; column < Config::head_dim;
       column += static_cast<int>(blockDim.x) / tile_q * piece) {
    float numbers[piece];
#pragma unroll
    for (int i = 0; i < piece; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(sums + (column + i) * tile_q + row * 4);
      numbers[i] = four.x * params.softmax_scale;  // mutate: DqOfTcgen05Unscaled
      numbers[i + 1] = four.y * params.softmax_scale;
      numbers[i + 2] = four.z * params.softmax_scale;
      numbers[i + 3] = four.w * params.softmax_scale;
    }
    store_piece<16>(target + column, numbers);
  }
}

template <class Config>
JIT_DEVICE void convert_dq(const AttentionParams& params, const GradientParams& gradient_params) {
  jit::convert_dq<KernelTraits<Config>>(params, gradient_params,
                                        [&] { convert_tile<Config>(params, gradient_params); });
}

}  // namespace jit::backward_tcgen05
