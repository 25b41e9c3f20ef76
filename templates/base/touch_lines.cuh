// Prefetches parameters.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// Reads a word of each line of a parameter of the kernel. Where the caches are cold each line is a trip to memory: these
/// are on the way at once, and not one after another as they are met.
template <class T>
JIT_DEVICE void touch_lines(const T& parameter) {
  constexpr int line_words = 16;
  const int* const words = reinterpret_cast<const int*>(&parameter);
  int all = 0;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(int)); i += line_words) all ^= words[i];
  if (all == 1) asm volatile("nanosleep.u32 1;");  // what has no effect would not be read
}

}  // namespace jit
