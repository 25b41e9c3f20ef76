// The tiles of keys of a block, one after another. The producer takes the next one and announces it by a tile info that
// accompanies the keys:
//
//     producer  acquire a stage of keys │ tile info and keys of the next tile │ its queries …
//     others    wait for the keys │ read the tile info │ the steps of the tile │ release the stage
//
// So the next tile's keys and first queries are copied while gradients of this one are stored or, with two stages of
// keys, while this one is computed.
//
// Pipelines provides `keys`, whose stage advances with each tile, and `key_tile_info`, the place of a stage's tile info.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/key_tile_scheduler.cuh"
#include "backward/step_pipeline.cuh"
#include "base/params.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Arrivals of the producer for a tile of keys: one with V and one with K.
inline constexpr int key_arrivals = 2;

/// Writes the tile info of a stage. By the producer, once the stage is acquired.
template <class Pipelines>
JIT_DEVICE void store_key_info(const Pipelines& pipelines, unsigned round, int tile, bool has_queries) {
  store_shared(pipelines.key_tile_info(round), tile);
  store_shared(pipelines.key_tile_info(round) + 4, has_queries);
}

/// Commits a tile that no query sees, or the end of all tiles. By a whole warp.
template <class Pipelines>
JIT_DEVICE void commit_no_queries(const Pipelines& pipelines, unsigned round, int tile) {
  pipelines.keys.producer_acquire(round);
  if (lane_id() != 0) return;
  store_key_info(pipelines, round, tile, false);
  for (int i = 0; i < key_arrivals; ++i) mbarrier_arrive(pipelines.keys.full_at(round));
}

/// Waits for the block's `round`-th tile of keys and calls `f` with it, whether queries see it, and the index of its
/// first step; `f` returns the index after its last step, which replaces `step`. Returns false, without a call, after
/// the last tile. By whole warps, each of which must release the stage of keys once per tile.
template <class Config, class Pipelines, class F>
JIT_DEVICE bool with_key_tile(const AttentionParams& params, const Pipelines& pipelines, unsigned round,
                              unsigned& step, F f) {
  pipelines.keys.consumer_wait(round);                                   // mutate: NoWaitForKeys
  const int tile = load_shared_by_warp(pipelines.key_tile_info(round));  // mutate: TheInfoOfTheOtherTile
  if (tile == no_key_tile) return false;
  const bool has_queries = load_shared_by_warp(pipelines.key_tile_info(round) + 4) != 0;
  KeyTile<Config> keys = key_tile<Config>(params, tile);
  keys.round = round;
  step = f(keys, has_queries, step);
  return true;
}

/// Calls f for all tiles of keys of the block. Returns the number of steps.
template <class Config, class Pipelines, class F>
JIT_DEVICE unsigned for_each_key_tile(const AttentionParams& params, const Pipelines& pipelines, F f) {
  unsigned step = 0;
#pragma unroll 1
  for (unsigned round = 0; with_key_tile<Config>(params, pipelines, round, step, f); ++round) {
  }
  return step;
}

}  // namespace jit
