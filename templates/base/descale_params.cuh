// A further parameter of kernels that read keys and values of 8 bits, behind the others. Compiled by the host and by
// NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

/// What elements of k and v are multiplied by, read on the device alone. `batch` of the strides is that of a batch entry,
/// or of a page where each key has a scale of its own; `seq`, from key to key, is 0 otherwise.
struct DescaleParams {
  const float* k = nullptr;  ///< null: 1
  const float* v = nullptr;  ///< null: 1
  TensorStrides k_strides = {};
  TensorStrides v_strides = {};
};

}  // namespace jit
