// The upper half of a product of 32-bit numbers. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The upper 32 bits of a product. On devices by __umulhi: from a 64-bit product the compiler would derive 64-bit
/// arithmetic, which costs an addition per round.
JIT_HOST_DEVICE inline unsigned upper_product(unsigned a, unsigned b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
#endif
}

}  // namespace jit
