// With which tile of queries blocks begin, and in which order they add to dQ where equal inputs must give equal bits: sums
// of floats depend on it.
//
// The tiles of keys of a head come in windows, whose blocks are all there at the same time: they begin in this order,
// and there are no more of them than multiprocessors. Blocks of a window begin at different tiles of queries, evenly
// spread, and go round. Whoever comes to a tile after fewer steps is first there, among equals the one behind, and
// windows follow one another. So a block waits for blocks alone that are at an earlier step, or behind it at the same
// one, or in an earlier window, and when all are as fast as each other nobody waits (Dash, "Deterministic Attention
// Scheduling for High-throughput Reproducible LLM Training", calls this a shift schedule).
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit::backward_wgmma {

/// How tiles of queries and of keys of a head meet.
template <class Config>
struct Rounds {
  int query_tiles;
  int key_tiles;
  int window;

  /// Windows are at most `largest_window` tiles long.
  __device__ __forceinline__ Rounds(int seqlen_q, int seqlen_kv, int largest_window)
      : query_tiles((seqlen_q + Config::tile_q - 1) / Config::tile_q),
        key_tiles((seqlen_kv + Config::tile_kv - 1) / Config::tile_kv),
        window(minimum(largest_window, key_tiles)) {}

  __device__ __forceinline__ int first_query_tile(int key_tile) const {
    return static_cast<int>(static_cast<unsigned>(key_tile % window) * query_tiles / window);
  }
  /// Of a window, how many tiles of keys begin with tile `query_tile` or before it: they come to it from there. The others
  /// have to go round.
  __device__ __forceinline__ int begin_up_to(int query_tile) const {
    return static_cast<int>((static_cast<unsigned>(query_tile + 1) * window + query_tiles - 1) / query_tiles);
  }
};

/// Counts tiles of keys from `first` on, each `stride` after the one before, as far as `end`: those with keys that some
/// query of tile `query_tile` sees, and of which `is_one` holds. By a whole warp; where its lanes ask the mask apart, these
/// are tiles for each lane.
template <class Config, class IsOne>
__device__ __forceinline__ int count_key_tiles(const BlockContext& context, int query_tile, int first,
                                               int stride, int end, IsOne is_one) {
  const typename Config::Mask mask(context);
  ScoreTile tile{.q_begin = query_tile * Config::tile_q,
                 .q_end = minimum((query_tile + 1) * Config::tile_q, context.seqlen_q),
                 .k_begin = 0,
                 .k_end = 0};
  const auto adds = [&](int key_tile) {
    if (key_tile >= end || !is_one(key_tile)) return false;
    tile.k_begin = key_tile * Config::tile_kv;
    tile.k_end = minimum(tile.k_begin + Config::tile_kv, context.seqlen_kv);
    return mask.classify(tile) != TileClass::empty;
  };
  constexpr bool together = needs_warp<typename Config::Mask>;
  constexpr int lanes = together ? 1 : warp_size;
  int count = 0;
#pragma unroll 1
  for (int at = first * lanes; at < end; at += stride * lanes) {
    if constexpr (together) {
      count += adds(at) ? 1 : 0;
    } else {
      count += __popc(__ballot_sync(full_warp, adds(at + lane_id())));
    }
  }
  return count;
}

/// How many tiles of keys add to tile `query_tile` of a query head before `key_tile` does. By a whole warp.
template <class Config>
__device__ __forceinline__ int turn_of(const BlockContext& context, int query_tile, int key_tile,
                                       int largest_window) {
  const Rounds<Config> rounds(context.seqlen_q, context.seqlen_kv, largest_window);
  const int own_window = key_tile / rounds.window * rounds.window;
  const int end = minimum(own_window + rounds.window, rounds.key_tiles);
  const int from_there = own_window + rounds.begin_up_to(query_tile);
  const bool goes_round = key_tile >= from_there;
  return count_key_tiles<Config>(context, query_tile, 0, 1, end, [&](int other) {
    return other < own_window || (other > key_tile && (goes_round || other < from_there)) ||
           (goes_round && other < from_there);
  });
}

/// How many of a warp's share of the tiles of keys add to tile `query_tile` of a query head: `warps` have a share each. By
/// whole warps.
template <class Config>
__device__ __forceinline__ int count_additions(const BlockContext& context, int query_tile, int warp,
                                               int warps) {
  const int key_tiles = (context.seqlen_kv + Config::tile_kv - 1) / Config::tile_kv;
  return count_key_tiles<Config>(context, query_tile, warp, warps, key_tiles, [](int) { return true; });
}

}  // namespace jit::backward_wgmma
