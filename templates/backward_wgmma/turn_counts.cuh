// Where it is kept how many tiles of keys add to a tile of queries before each one: (tiles of queries of the call, tiles of
// keys of a head, rounded up), so that four of them can be copied at once.
#pragma once

#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/smem_layout.cuh"
#include "base/params.cuh"

namespace jit::backward_wgmma {

/// The place of tile 0 of keys at a tile of queries, counted among those of the call.
template <class Config>
__device__ __forceinline__ long long first_turn_count(const AttentionParams& params, long long query_tile) {
  return query_tile * padded_turn_counts(key_tiles_of_head<Config>(params));
}

}  // namespace jit::backward_wgmma
