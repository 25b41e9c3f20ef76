// The warp of a block that waits for its turn to add to dQ (turns.cuh): until all earlier additions are visible.
//
// It reads the counts (`turn_counts`) and the dQ info (`dq_info`) of a step from the stages of Pipelines' `q`, and
// signals through `turns` that it is the step's turn. Traits provide `adds_by_tma`, and `dq_adders`, the additions per
// tile of queries and tile of keys.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward/query_tile.cuh"
#include "backward/step_infos.cuh"
#include "backward/turns.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/atomic.cuh"
#include "ptx/bulk_copy.cuh"

namespace jit {

/// Waits until `count` additions are visible, possibly also that of the peer block of a pair. By one thread.
template <class Traits>
JIT_DEVICE void wait_for_additions(const int* additions, int count) {
  using Config = typename Traits::Config;
  constexpr int of_peer = Config::pair ? 1 : 0;  // mutate: ThePeerMustNotHaveAdded
  // mutate: NobodyWaits
  for (int added = -1; added != count && added != count + of_peer;) added = load_acquire(additions);
  if constexpr (Traits::adds_by_tma) fence_proxy_async();
}

/// The counter of additions to tile `tile` of queries of the batch entry of `keys`.
template <class Config>
JIT_DEVICE int* additions(const AttentionParams& params, const Turns& turns, const KeyTile<Config>& keys,
                          int tile) {
  return turns.additions + first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0) + tile;
}

/// Waits for the turns of all steps of a tile of keys. `waits`: whether blocks wait for each other.
template <class Pipelines, class Config>
JIT_DEVICE unsigned wait_for_turns(const AttentionParams& params, const Turns& turns,
                                   const Pipelines& pipelines, const KeyTile<Config>& keys, bool waits,
                                   unsigned step) {
  using Traits = typename Pipelines::Traits;
  const bool last_is_first = last_adds_first(params, turns, keys.batch, keys.kv_head);
  for (int info = 0; (info & last_dq_tile) == 0; ++step) {
    pipelines.q.consumer_wait(step);
    info = load_shared_by_warp(pipelines.dq_info(step));
    const int before =
        loaded_turn<Config>(pipelines.turn_counts(step), keys.k_begin / Config::tile_kv, last_is_first);
    pipelines.q.consumer_release(step);
    pipelines.turns.producer_acquire(step);
    if (lane_id() == 0 && waits) {
      wait_for_additions<Traits>(additions<Config>(params, turns, keys, info & ~last_dq_tile),
                                 before * Traits::dq_adders);  // mutate: OneOfTwoIsEnough
    }
    if (lane_id() == 0) store_shared(pipelines.turns.tile(step), before);
    pipelines.turns.producer_commit(step);
  }
  return step;
}
/// Waits for the turns of all tiles of keys of the block.
template <class Pipelines>
JIT_DEVICE void wait_for_turns(const AttentionParams& params, const Turns& turns, unsigned smem) {
  using Config = typename Pipelines::Traits::Config;
  const Pipelines pipelines(smem);
  const bool waits = have_turns<Config>(params, turns);
  for_each_key_tile<Config>(
      params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
        pipelines.keys.consumer_release(keys.round);
        return has_queries ? wait_for_turns(params, turns, pipelines, keys, waits, step) : step;
      });
}

/// Waits until it is the turn of a step. Returns whether its addition is the first one, which stores, since no kernel
/// has written zeros. By each warp that adds dQ.
template <class Pipelines>
JIT_DEVICE bool take_turn(const Pipelines& pipelines, unsigned step) {
  pipelines.turns.consumer_wait(step);
  const bool is_first = load_shared_by_warp(pipelines.turns.tile(step)) == 0;  // mutate: NobodyStores
  pipelines.turns.consumer_release(step);
  return is_first;
}

}  // namespace jit
