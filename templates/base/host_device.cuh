// Function attributes. Host and device both call some functions; a host compiler does not know CUDA's keywords. Device functions
// are always inlined, since the register allocation of a kernel would not survive a call.
#pragma once

#ifdef __CUDACC__
#  define JIT_HOST_DEVICE __host__ __device__
#  define JIT_DEVICE __device__ __forceinline__
#else
#  define JIT_HOST_DEVICE
#endif

namespace jit {

/// x / y rounded up, of numbers whose sum fits an int.
JIT_HOST_DEVICE constexpr int rounded_up_quotient(int x, int y) { return (x + y - 1) / y; }

}  // namespace jit
