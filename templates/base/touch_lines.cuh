// Prefetches parameters.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Reads a word of each cache line of a kernel parameter, so that misses of cold caches overlap instead of following
/// one another.
template <class T>
JIT_DEVICE void touch_lines(const T& parameter) {
  constexpr int line_words = 16;
  const int* const words = reinterpret_cast<const int*>(&parameter);
  int all = 0;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(int)); i += line_words) all ^= words[i];
  if (all == 1) asm volatile("nanosleep.u32 1;");  // keeps the compiler from removing the loads
}

}  // namespace jit
