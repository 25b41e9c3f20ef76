// Memory that is brought near before it is asked for (PTX ISA, "prefetch").
#pragma once

namespace jit {

/// Starts to bring a line into the L2 cache, and what says where its page lies. No address is none.
__device__ __forceinline__ void prefetch_l2(const void* address) {
  if (address != nullptr) asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

}  // namespace jit
