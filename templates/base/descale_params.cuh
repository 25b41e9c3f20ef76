// The scales that kernels of 8-bit keys and values read: a part of AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_strides.cuh"

namespace jit {

/// Dequantization scales of q, k and v, read on the device alone. `batch` of the strides is that of a batch
/// entry, or of a page where each key has a scale of its own; `head` is from one KV head to the next; `seq`, from key to
/// key, is 0 otherwise. What there is one of for each column of values lies side by side.
struct DescaleParams {
  const float* q;  ///< null: 1; of q of 8 bits alone
  const float* k;  ///< null: 1
  const float* v;  ///< null: 1
  TensorStrides q_strides;
  TensorStrides k_strides;
  TensorStrides v_strides;
  const float* v_mean;     ///< of each column of a KV head, what values have lost; if Config::v_mean
  const float* lse_shift;  ///< of each query, what its scores have lost; if Config::lse_shift
  TensorStrides v_mean_strides;
  TensorStrides lse_shift_strides;
};

}  // namespace jit
