// A further parameter of kernels that read keys and values of 8 bits, behind the others. Compiled by the host and by
// NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

/// What elements of q, k and v are multiplied by, read on the device alone. `batch` of the strides is that of a batch
/// entry, or of a page where each key has a scale of its own; `head` is from one KV head to the next; `seq`, from key to
/// key, is 0 otherwise. What there is one of for each column of values lies side by side.
struct DescaleParams {
  const float* q = nullptr;  ///< null: 1; of q of 8 bits alone
  const float* k = nullptr;  ///< null: 1
  const float* v = nullptr;  ///< null: 1
  TensorStrides q_strides = {};
  TensorStrides k_strides = {};
  TensorStrides v_strides = {};
  const float* v_mean = nullptr;  ///< of each column of a KV head, what values have lost; if Config::v_mean
  const float* lse_shift = nullptr;  ///< of each query, what its scores have lost; if Config::lse_shift
  TensorStrides v_mean_strides = {};
  TensorStrides lse_shift_strides = {};
};

}  // namespace jit
