// Fills a tensor with numbers that look like a standard normal sample, so that tuning never measures on
// zeros.
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "ptx/stored_numbers.cuh"

namespace jit {

/// A 32-bit mix of a counter ("lowbias32", Wellons, "Prospecting for Hash Functions").
JIT_DEVICE unsigned mix(unsigned x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/// The sum of four uniform numbers, scaled to variance 1: close enough to normal for timing and for checking.
JIT_DEVICE float normal_like(unsigned counter, unsigned seed) {
  float sum = 0;
  for (unsigned i = 0; i < 4; ++i)
    sum += static_cast<float>(mix(counter * 4 + i ^ mix(seed)) >> 8) * 0x1p-24f - 0.5f;
  return sum * 1.7320508f;
}

/// A word of elements, of which `counter` is the first one's number.
template <class Element>
JIT_DEVICE unsigned random_word(unsigned counter, unsigned seed) {
  const auto number = [&](unsigned i) { return normal_like(counter + i, seed); };
  if constexpr (sizeof(Element) == 1 && !requires { Element::mantissa_bits; }) {
    return mix(counter ^ mix(seed));  // whole numbers, and packed ones: all bits may occur
  } else if constexpr (is_fp8<Element>) {
    return pack_fp8<Element>(number(0), number(1)) | pack_fp8<Element>(number(2), number(3)) << 16;
  } else {
    return pack<Element>(number(0), number(1));
  }
}

template <class Element>
__device__ void random_fill(unsigned* words, long long count, unsigned seed) {
  constexpr unsigned per_word = sizeof(unsigned) / sizeof(Element);
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count; i += threads)
    words[i] = random_word<Element>(static_cast<unsigned>(i) * per_word, seed);
}

}  // namespace jit
