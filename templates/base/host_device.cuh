// The few functions that host and device both call carry this mark; a host compiler does not know the words
// behind it.
#pragma once

#ifdef __CUDACC__
#  define JIT_HOST_DEVICE __host__ __device__
#else
#  define JIT_HOST_DEVICE
#endif

namespace jit {

/// x / y rounded up, of numbers whose sum fits an int.
JIT_HOST_DEVICE constexpr int rounded_up_quotient(int x, int y) { return (x + y - 1) / y; }

}  // namespace jit
