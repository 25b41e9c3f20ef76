// What the kernel of an output functor's gradients leaves. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_strides.cuh"

namespace jit {

/// The gradient of o before the functor, rounded to the type of q: dense rows.
struct RawGradient {
  void* data;
  TensorStrides strides;
};

}  // namespace jit
