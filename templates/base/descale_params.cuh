// A further parameter of kernels that read keys and values of 8 bits, behind the others. Compiled by the host and by
// NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

/// What elements of q, k and v are multiplied by, read on the device alone. `batch` of the strides is that of a batch
/// entry, or of a page where each key has a scale of its own; `head` is from one KV head to the next; `seq`, from key to
/// key, is 0 otherwise.
struct DescaleParams {
  const float* q = nullptr;  ///< null: 1; of q of 8 bits alone
  const float* k = nullptr;  ///< null: 1
  const float* v = nullptr;  ///< null: 1
  TensorStrides q_strides = {};
  TensorStrides k_strides = {};
  TensorStrides v_strides = {};
};

}  // namespace jit
