// What keys and values of 8 bits are multiplied by where those of a part have one scale each.
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "split_keys/part_note.cuh"

namespace jit {

/// That of the part's keys, or values; 1 where `scales` is null.
__device__ __forceinline__ float scale_of_part(const float* scales, const TensorStrides& strides,
                                               const PartNote& part) {
  return scales != nullptr ? scales[part.batch * strides.batch + part.kv_head * strides.head] : 1.0f;
}

}  // namespace jit
