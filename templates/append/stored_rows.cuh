// Elements of a cache: those of k and v, or of 8 bits, divided by a scale.
#pragma once

#include "append/params.cuh"
#include "append/token_place.cuh"
#include "base/row_pieces.cuh"
#include "ptx/fp8.cuh"

namespace jit {

/// Where the scale of a row of the cache is.
__device__ __forceinline__ float* scale_at(float* scales, const TensorStrides& strides,
                                           const TokenPlace& place, int head) {
  return scales + place.page * strides.batch + place.offset * strides.seq + head * strides.head;
}

template <int alignment, int count, class Element>
__device__ __forceinline__ void store_in_cache(Element* target, const float (&values)[count], float scale) {
  if constexpr (!is_fp8<Element>) {
    store_piece<alignment>(target, values);
  } else {
    unsigned words[(count + 3) / 4] = {};
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const float low = values[i] / scale, high = i + 1 < count ? values[i + 1] / scale : 0.0f;
      words[i / 4] |= pack_fp8<Element>(low, high) << (i % 4 * 8);
    }
    store_words<count, alignment>(target, words);
  }
}

}  // namespace jit
