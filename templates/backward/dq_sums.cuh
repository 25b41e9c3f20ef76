// Where a one-pass kernel sums dQ: in fp32, in global memory, tile after tile, and in a tile in the order in which consumers
// hold it in their registers and leave it in shared memory, so that what is added is bytes side by side.
//
//     tile (batch entry, head, tile of queries), or (head, place of a tile) of varlen queries (base/varlen_tiles.cuh)
//       part 0, part 1, … some columns of the tile each
#pragma once

#include "base/gradient_params.cuh"
#include "base/prelude.cuh"

namespace jit {

/// Tiles are counted among those of the call.
template <class Traits>
JIT_DEVICE float* dq_sums(const GradientParams& gradients, long long tile) {
  return gradients.dq_sums + tile * Traits::dq_tile_floats;
}

}  // namespace jit
