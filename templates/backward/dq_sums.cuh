// The sums of dQ of a one-pass kernel: fp32 in global memory, tile after tile. Elements of a tile are in the order of
// the consumers' registers, which is also that of shared memory, so that an addition is one bulk copy.
//
//     tile (batch entry, head, tile of queries), or (head, place of a tile) of varlen queries (base/varlen_tiles.cuh)
//       part 0, part 1, … some columns of the tile each
#pragma once

#include "base/gradient_params.cuh"
#include "base/prelude.cuh"

namespace jit {

/// The sums of a tile of queries, counted in the call.
template <class Traits>
JIT_DEVICE float* dq_sums(const GradientParams& gradients, long long tile) {
  return gradients.dq_sums + tile * Traits::dq_tile_floats;
}

}  // namespace jit
