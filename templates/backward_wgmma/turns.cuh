// In which order blocks add to dQ where equal inputs must give equal bits: sums of floats depend on it.
//
// The tiles of keys of a head come in windows, whose blocks are all there at the same time: they begin in this order,
// and there are no more of them than multiprocessors. Blocks of a window begin at different tiles of queries, evenly
// spread, and go round. Whoever comes to a tile after fewer steps is first there, and windows follow one another. So a
// block waits for blocks alone that are at an earlier step, or in an earlier window, and when all are as fast as each
// other nobody waits (Dash, "Deterministic Attention Scheduling for High-throughput Reproducible LLM Training", calls
// this a shift schedule).
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/atomic.cuh"

namespace jit::backward_wgmma {

/// The tile of queries that the `place`-th tile of keys of a window begins with, of `query_tiles`: place · query_tiles /
/// window, without a product beyond 32 bits.
__device__ __forceinline__ int first_of_round(int place, int query_tiles, int window) {
  return place * (query_tiles / window) + place * (query_tiles % window) / window;
}

/// How many tiles of keys add to tile `query_tile` of a query head before `key_tile` does. By a whole warp.
template <class Config>
__device__ __forceinline__ int turn_of(const BlockContext& context, int query_tile, int key_tile,
                                       int window) {
  const typename Config::Mask mask(context);
  const int query_tiles = (context.seqlen_q + Config::tile_q - 1) / Config::tile_q;
  const int key_tiles = (context.seqlen_kv + Config::tile_kv - 1) / Config::tile_kv;
  ScoreTile tile{.q_begin = query_tile * Config::tile_q,
                 .q_end = minimum((query_tile + 1) * Config::tile_q, context.seqlen_q),
                 .k_begin = 0,
                 .k_end = 0};
  const int own_place = key_tile % window, own_window = key_tile - own_place;
  const auto steps_to = [&](int place) {
    const int steps = query_tile - first_of_round(place, query_tiles, window);
    return steps < 0 ? steps + query_tiles : steps;
  };
  const int own_steps = steps_to(own_place);
  const int end = minimum(own_window + window, key_tiles);
  const auto is_before = [&](int other) {
    if (other >= own_window) {
      const int steps = steps_to(other - own_window);
      if (steps > own_steps || (steps == own_steps && other >= key_tile)) return false;
    }
    tile.k_begin = other * Config::tile_kv;
    tile.k_end = minimum(tile.k_begin + Config::tile_kv, context.seqlen_kv);
    return mask.classify(tile) != TileClass::empty;
  };
  int turn = 0;
  if constexpr (needs_warp<typename Config::Mask>) {
#pragma unroll 1
    for (int other = 0; other < end; ++other) turn += is_before(other) ? 1 : 0;
  } else {
#pragma unroll 1
    for (int first = 0; first < end; first += warp_size) {
      const int other = first + lane_id();
      turn += __popc(__ballot_sync(full_warp, other < end && is_before(other)));
    }
  }
  return turn;
}

/// The same of the tile with index `tile` among those of the batch entry, and the keys of a block.
template <class Config>
__device__ __forceinline__ int turn_of_tile(const AttentionParams& params, const TensorMaps& maps,
                                            const KeyTile<Config>& keys, int tile) {
  const int tiles = query_tiles<Config>(params);
  return turn_of<Config>(keys.sequences(params).context(keys.batch, tile / tiles), tile % tiles,
                         keys.k_begin / Config::tile_kv, maps.window);
}

/// Waits until it is the turn of a block. By one thread.
__device__ __forceinline__ void wait_for_turn(const int* turns, int turn) {
  while (load_acquire(turns) != turn) {
  }
  fence_proxy_async();
}

}  // namespace jit::backward_wgmma
