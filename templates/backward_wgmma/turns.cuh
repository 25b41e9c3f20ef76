// In which order blocks add to dQ where equal inputs must give equal bits: sums of floats depend on it.
//
// Tiles of keys add in ascending order, those that the mask leaves: who is first stores, and, with a consumer of dQ, who
// is last rounds the sum. Blocks share the keys of a head (key_tiles.cuh), and each visits tiles of queries in descending
// order. So the block of the next tile of keys is a step behind that of this one from its first wait on, and then nobody
// waits. Under a causal mask all keys are seen by the last queries, so that all blocks begin there.
//
// Nobody waits for ever: a block waits for blocks alone that are at an earlier step of the keys that they have at the same
// time, or at earlier keys, and all that share a head are there.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/atomic.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::backward_wgmma {

/// How many of the tiles of keys from `begin` to `end` add to tile `query_tile` of a query head. By a whole warp.
template <class Config>
__device__ __forceinline__ int count_adding(const BlockContext& context, int query_tile, int begin, int end) {
  const typename Config::Mask mask(context);
  ScoreTile tile{.q_begin = query_tile * Config::tile_q,
                 .q_end = minimum((query_tile + 1) * Config::tile_q, context.seqlen_q),
                 .k_begin = 0,
                 .k_end = 0};
  const auto adds = [&](int key_tile) {
    tile.k_begin = key_tile * Config::tile_kv;
    tile.k_end = minimum(tile.k_begin + Config::tile_kv, context.seqlen_kv);
    return mask.classify(tile) != TileClass::empty;
  };
  int count = 0;
  if constexpr (needs_warp<typename Config::Mask>) {
#pragma unroll 1
    for (int key_tile = begin; key_tile < end; ++key_tile) count += adds(key_tile) ? 1 : 0;
  } else {
#pragma unroll 1
    for (int first = begin; first < end; first += warp_size) {
      const int key_tile = first + lane_id();
      count += __popc(__ballot_sync(full_warp, key_tile < end && adds(key_tile)));
    }
  }
  return count;
}

/// How many tiles of keys add to tile `tile` of queries, of those of a batch entry, before those of a block, and whether
/// any does behind them.
template <class Config>
__device__ __forceinline__ int count_before(const AttentionParams& params, const KeyTile<Config>& keys,
                                            int tile) {
  const int tiles = query_tiles<Config>(params);
  return count_adding<Config>(keys.sequences(params).context(keys.batch, tile / tiles), tile % tiles, 0,
                              keys.k_begin / Config::tile_kv);
}
template <class Config>
__device__ __forceinline__ bool is_last(const AttentionParams& params, const KeyTile<Config>& keys,
                                        int tile) {
  const int tiles = query_tiles<Config>(params);
  return count_adding<Config>(keys.sequences(params).context(keys.batch, tile / tiles), tile % tiles,
                              keys.k_begin / Config::tile_kv + 1, key_tiles_of_head<Config>(params)) == 0;
}

/// Waits until so many have added. By one thread.
__device__ __forceinline__ void wait_for_turn(const int* turns, int before) {
  while (load_acquire(turns) != before) {
  }
  fence_proxy_async();
}

}  // namespace jit::backward_wgmma
