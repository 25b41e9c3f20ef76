// Hints that memory will be read (PTX ISA, "prefetch").
#pragma once

namespace jit {

/// Brings the line of a global address to the L1 cache, or to the L2 cache.
__device__ __forceinline__ void prefetch_l1(const void* gmem) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(gmem) : "memory");
}
__device__ __forceinline__ void prefetch_l2(const void* gmem) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(gmem) : "memory");
}

}  // namespace jit
