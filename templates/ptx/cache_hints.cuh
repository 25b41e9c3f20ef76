// Hints that memory will be read (PTX ISA, "prefetch").
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Brings the line of a global address to the L1 cache, or to the L2 cache.
JIT_DEVICE void prefetch_l1(const void* gmem) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(gmem) : "memory");
}
JIT_DEVICE void prefetch_l2(const void* gmem) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(gmem) : "memory");
}

// Loads of what is read once: it takes no room in the L1 cache (PTX ISA, "ld"). They stay where they stand, so that those in
// front of a wait are on their way during it.

JIT_DEVICE void load_once(const unsigned* gmem, unsigned& word) {
  asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(gmem) : "memory");
}
/// Loads words side by side, at an address aligned to as many bytes as they have.
JIT_DEVICE void load_once(const unsigned* gmem, unsigned& first, unsigned& second) {
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "l"(gmem)
               : "memory");
}
JIT_DEVICE void load_once(const unsigned* gmem, unsigned& first, unsigned& second, unsigned& third,
                          unsigned& fourth) {
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(first), "=r"(second), "=r"(third), "=r"(fourth)
               : "l"(gmem)
               : "memory");
}

}  // namespace jit
