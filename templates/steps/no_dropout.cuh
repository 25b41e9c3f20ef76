// Applies dropout to packed P. In kernels without dropout NoDropout keeps all scores.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct NoDropout {};

/// Clears the dropped elements of a packed k-step of P (Accumulator::pack_step).
template <class Kept>
JIT_DEVICE void drop_step(const Kept& kept, unsigned (&a)[4], int m, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] &= kept.pair_mask(2 * m + i % 2, 2 * step + i / 2);
}
JIT_DEVICE void drop_step(NoDropout, unsigned (&/*a*/)[4], int /*m*/, int /*step*/) {}

}  // namespace jit
