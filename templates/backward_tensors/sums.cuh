// Sums whose order does not matter: 64-bit integers, in units of a power of 2 that the sums are known not to exceed
// 2^62 of. Integers add up to the same whatever the order, so that any thread may add anywhere at any time, and equal
// inputs still give bitwise identical results. Compiled by the host and by NVRTC.
//
// The unit comes from a first run of the kernel, which sums nothing: each of its T threads adds up the magnitudes of
// what it would add, and the largest of these numbers, M < 2^e, is left in `bounds`. No sum exceeds T · M, of one element or
// of all together. In units of 2^(e + log2 T − 61) that is 2^61, and the other half is for roundings. A contribution is
// rounded to half a unit: for a million threads that is at most 2^-40 of M.
#pragma once

#include "base/params.cuh"

namespace jit {

/// The third parameter of the kernel, beside AttentionParams and GradientParams.
struct TensorSums {
  unsigned* bounds;                      ///< by slot: M as the bits of a float; not finite: nor are gradients
  long long* sums[max_functor_tensors];  ///< by slot, for each element; null: not asked for
  int log2_threads;                      ///< of the whole call, rounded up
  int measures;                          ///< whether this run is the first one
};

/// Threads of a block that rounds sums.
namespace backward_tensors {
inline constexpr int convert_threads = 256;
}

}  // namespace jit
