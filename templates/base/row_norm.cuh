// RMS norm of rows that lanes share, as a Config asks for it (Zhang and Sennrich, "Root Mean Square Layer Normalization"):
// x · weight / sqrt(mean(x²) + eps).
#pragma once

#include "base/prelude.cuh"
#include "base/row_pieces.cuh"

namespace jit {

/// 1 / sqrt(mean(x²) + eps) of the row that `lanes` lanes share; 1 without a norm. By whole warps.
template <class Config, int lanes, int iterations, int piece>
JIT_DEVICE float row_norm_factor(const float (&x)[iterations][piece], float eps) {
  if constexpr (!Config::norm) return 1.0f;
  float sum = 0;
#pragma unroll
  for (int iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
    for (int i = 0; i < piece; ++i) sum += x[iteration][i] * x[iteration][i];
  }
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
  return rsqrtf(sum / Config::head_dim + eps);
}

/// Multiplies the piece from column `begin` on by the factor and its weights.
template <class Config, int piece>
JIT_DEVICE void normalize_piece(float (&values)[piece], int begin, float factor, const void* weights) {
  if constexpr (Config::norm) {
    float weight[piece];
    load_piece<Config::alignment>(static_cast<const typename Config::WeightElement*>(weights) + begin,
                                  weight);
#pragma unroll
    for (int i = 0; i < piece; ++i)
      values[i] *= factor * (Config::norm_adds_one ? 1.0f + weight[i] : weight[i]);
  }
}

}  // namespace jit
