// Sums and maxima over lanes.
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// The inclusive prefix sum over lanes.
JIT_DEVICE int sum_up_to_lane(int x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const int before = __shfl_up_sync(full_warp, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}

/// The sum over all lanes, bitwise identical in all of them.
JIT_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) x += __shfl_xor_sync(full_warp, x, step);
  return x;
}

/// The largest number of all lanes.
JIT_DEVICE float warp_max(float x) {
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2)
    x = ::fmaxf(x, __shfl_xor_sync(full_warp, x, offset));
  return x;
}

}  // namespace jit
