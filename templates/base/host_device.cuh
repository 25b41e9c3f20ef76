// Marks of functions: the few that host and device both call, where a host compiler does not know the words behind
// the mark; and those of the device alone, inlined into their kernel, whose registers would not survive a call.
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
