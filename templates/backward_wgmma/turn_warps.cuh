// The warps of a block that keep the order of additions to dQ (backward/turns.cuh): one waits until those before are there,
// and with a consumer of dQ others say that what it has added is there, so that it need not wait for that.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward/turns.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/atomic.cuh"
#include "ptx/bulk_copy.cuh"

namespace jit::backward_wgmma {

/// Waits until so many additions are there, and perhaps that of the other block of a pair. By one thread.
template <class Config>
JIT_DEVICE void wait_for_additions(const int* additions, int count) {
  constexpr int of_peer = Config::pair ? 1 : 0;  // mutate: ThePeerMustNotHaveAdded
  // mutate: NobodyWaits
  for (int added = -1; added != count && added != count + of_peer;) added = load_acquire(additions);
  if constexpr (KernelTraits<Config>::adds_by_tma) fence_proxy_async();
}

/// The counter of what has been added to tile `tile` of queries, of those of the batch entry of `keys`.
template <class Config>
JIT_DEVICE int* additions(const AttentionParams& params, const Turns& turns, const KeyTile<Config>& keys,
                          int tile) {
  return turns.additions + first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0) + tile;
}

/// The steps of a tile of keys. `waits` where blocks wait for one another.
template <class Config>
JIT_DEVICE unsigned wait_for_turns(const AttentionParams& params, const Turns& turns,
                                   const Pipelines<Config>& pipelines, const KeyTile<Config>& keys,
                                   bool waits, unsigned step) {
  for (int info = 0; (info & last_dq_tile) == 0; ++step) {
    pipelines.q.consumer_wait(step);
    info = load_shared_by_warp(pipelines.dq_info(step));
    const int before = loaded_turn<Config>(pipelines.turn_counts(step), keys.k_begin / Config::tile_kv);
    pipelines.q.consumer_release(step);
    pipelines.turns.producer_acquire(step);
    if (lane_id() == 0 && waits) {
      wait_for_additions<Config>(additions<Config>(params, turns, keys, info & ~last_dq_tile),
                                 before * KernelTraits<Config>::dq_adders);  // mutate: OneOfTwoIsEnough
    }
    if (lane_id() == 0) store_shared(pipelines.turns.tile(step), before);
    pipelines.turns.producer_commit(step);
  }
  return step;
}
/// All tiles of keys of the block.
template <class Config>
JIT_DEVICE void wait_for_turns(const AttentionParams& params, const Turns& turns, unsigned smem) {
  const Pipelines<Config> pipelines(smem);
  const bool waits = have_turns<Config>(params, turns);
  for_each_key_tile<Config>(
      params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
        pipelines.keys.consumer_release(keys.round);
        return has_queries ? wait_for_turns<Config>(params, turns, pipelines, keys, waits, step) : step;
      });
}

/// The value in place of a tile of queries when no addition follows.
inline constexpr int no_addition = -1;

/// Says when what a consumer of dQ has added is there. By one of as many warps as there are stages, each of which has every
/// so many steps: it takes about a step until an addition is there.
template <class Config>
JIT_DEVICE void pass_turns(const Turns& turns, unsigned own_stage, unsigned smem) {
  const Pipelines<Config> pipelines(smem);
#pragma unroll 1
  for (unsigned step = own_stage;; step += stages_turns) {
    pipelines.added.consumer_wait(step);
    const int tile = load_shared_by_warp(pipelines.added.tile(step));
    if (tile == no_addition) return;
    if (lane_id() == 0) add_one_release(turns.additions + tile);  // mutate: TurnsAreNotPassedOn
    pipelines.added.consumer_release(step);
  }
}

/// Hands over what has been added to a tile of queries of the call, or that no addition follows. By each warp of a
/// consumer of dQ.
template <class Config>
JIT_DEVICE void hand_over_addition(const Pipelines<Config>& pipelines, unsigned step, int tile) {
  pipelines.added.producer_acquire(step);
  if (threadIdx.x % warpgroup_size == 0) store_shared(pipelines.added.tile(step), tile);
  pipelines.added.producer_commit(step);
}

/// Waits until it is the turn of a step. Returns whether nobody adds before it, so that it stores: nobody has written zeros.
/// By each warp that adds dQ.
template <class Config>
JIT_DEVICE bool take_turn(const Pipelines<Config>& pipelines, unsigned step) {
  pipelines.turns.consumer_wait(step);
  const bool is_first = load_shared_by_warp(pipelines.turns.tile(step)) == 0;  // mutate: NobodyStores
  pipelines.turns.consumer_release(step);
  return is_first;
}

}  // namespace jit::backward_wgmma
