// Work tiles of a pair of blocks (ptx/tcgen05.cuh): both blocks walk through the same list, and the block of rank 1 has
// the second half of each tile's queries. A Config of such kernels has `blocks_per_tile`.
#pragma once

#include "base/prelude.cuh"
#include "ptx/cluster.cuh"

namespace jit {

template <class Config>
concept pairs_blocks = requires {
  requires Config::blocks_per_tile == 2;
};

/// The rank of the block among those of its work tile.
template <class Config>
JIT_DEVICE int rank_in_tile() {
  if constexpr (pairs_blocks<Config>) {
    return cluster_rank();
  } else {
    return 0;
  }
}

/// The block's first place in the list of work tiles, and the stride to its next one. Pairs take tiles statically:
/// their blocks could not request the same one from a counter.
template <class Config>
JIT_DEVICE int first_place() {
  return static_cast<int>(blockIdx.x) / (pairs_blocks<Config> ? 2 : 1);
}
template <class Config>
JIT_DEVICE int places_at_a_time() {
  return static_cast<int>(gridDim.x) / (pairs_blocks<Config> ? 2 : 1);
}

/// The current place of a pair, which takes tiles statically.
template <class Config>
struct PlaceInTurn {};
template <pairs_blocks Config>
struct PlaceInTurn<Config> {
  int place = first_place<Config>();
};

}  // namespace jit
