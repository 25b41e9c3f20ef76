// What keys and values of 8 bits are multiplied by where those of a split have one scale each.
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// That of the split's keys, or values; 1 where `scales` is null.
__device__ __forceinline__ float scale_of_split(const float* scales, const TensorStrides& strides,
                                                const SplitInfo& split) {
  return scales != nullptr ? scales[split.batch * strides.batch + split.kv_head * strides.head] : 1.0f;
}

}  // namespace jit
