// From the largest magnitude of what becomes of 8 bits to its scale.
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"

namespace jit {

/// The scale with which `magnitude` becomes the largest element; elements times it are numbers again. Of less than
/// 2^-100 it is 1, and an infinity counts as the largest float.
template <class Element>
__device__ __forceinline__ float scale_of(float magnitude) {
  constexpr float largest_float = 3.402823466e38f;
  const float bounded = fminf(magnitude, largest_float);
  return bounded < 0x1p-100f ? 1.0f : __fdiv_rn(bounded, Element::largest);
}

}  // namespace jit
