// Work tiles of a pair of blocks (ptx/tcgen05.cuh): both go through the same list, and the block of rank 1 has the second
// half of the queries. A Config of such kernels has `blocks_per_tile`.
#pragma once

#include "base/prelude.cuh"
#include "ptx/cluster.cuh"

namespace jit {

template <class Config>
concept pairs_blocks = requires {
  requires Config::blocks_per_tile == 2;
};

/// The block's place among those of its work tile.
template <class Config>
JIT_DEVICE int rank_in_tile() {
  if constexpr (pairs_blocks<Config>) {
    return cluster_rank();
  } else {
    return 0;
  }
}

/// The first place of the block in the list of work tiles, and how many are taken at a time. Pairs take the tiles in turn:
/// their blocks could not ask a counter together.
template <class Config>
JIT_DEVICE int first_place() {
  return static_cast<int>(blockIdx.x) / (pairs_blocks<Config> ? 2 : 1);
}
template <class Config>
JIT_DEVICE int places_at_a_time() {
  return static_cast<int>(gridDim.x) / (pairs_blocks<Config> ? 2 : 1);
}

/// The place of tiles that blocks take in turn.
template <class Config>
struct PlaceInTurn {};
template <pairs_blocks Config>
struct PlaceInTurn<Config> {
  int place = first_place<Config>();
};

}  // namespace jit
