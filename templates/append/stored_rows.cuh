// Elements of a cache: those of k and v, or of 8 bits, divided by a scale.
#pragma once

#include "append/params.cuh"
#include "base/row_pieces.cuh"
#include "ptx/fp8.cuh"

namespace jit {

/// What a head's elements are divided by.
template <class Element>
__device__ __forceinline__ float stored_scale(const float* scales, int stride, int head) {
  if constexpr (!is_fp8<Element>) return 1.0f;
  return scales != nullptr ? scales[head * stride] : 1.0f;
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
