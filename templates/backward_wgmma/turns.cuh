// In which order blocks add to dQ where equal inputs must give bitwise identical results: sums of floats depend on it.
//
// Tiles of keys that the mask leaves add in the order of the times of their visits (visits.cuh): if all steps take as long,
// nobody waits. The kernel that runs before counts how many add before each (count_turns.cuh). One warp of a block waits for
// these, while dQ is computed. With a consumer of dQ another one says that what it has added is there, so that the
// consumer need not wait for that. Who is first stores, so that nobody must have written zeros.
//
// Nobody waits for ever: a block waits for steps of earlier times alone, of blocks that share its head. These begin one after
// another (key_tiles.cuh).
//
// Of sequences whose lengths the device alone knows, the first tile of keys adds first (turn_words.cuh), and tiles of queries
// are visited from the last one on (turn_tiles.cuh). Blocks draw tiles of keys in that order, and wait for those drawn before.
// Where boundaries do not ascend, so that there may be tiles of nobody, nobody waits.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "backward_wgmma/turn_counts.cuh"
#include "backward_wgmma/turn_words.cuh"
#include "backward_wgmma/visits.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/atomic.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::backward_wgmma {

/// The visits of a block to the tiles of queries of each head with the tile of keys that it has.
template <class Config>
__device__ __forceinline__ Visits own_visits(const AttentionParams& params, const HeadVisits& visits,
                                             const KeyTile<Config>& keys) {
  return visits.visits(keys.k_begin / Config::tile_kv,
                       visits.begins_backward(keys.batch * params.heads_kv + keys.kv_head));
}

/// Waits until so many additions are there, and perhaps that of the other block of a pair. By one thread.
template <class Config>
__device__ __forceinline__ void wait_for_additions(const int* additions, int count) {
  constexpr int of_peer = Config::pair ? 1 : 0;  // mutate: ThePeerMustNotHaveAdded
  // mutate: NobodyWaits
  for (int added = -1; added != count && added != count + of_peer;) added = load_acquire(additions);
  if constexpr (KernelTraits<Config>::adds_by_tma) fence_proxy_async();
}

/// The counter of what has been added to tile `tile` of queries, of those of the batch entry of `keys`.
template <class Config>
__device__ __forceinline__ int* additions(const AttentionParams& params, const TensorMaps& maps,
                                          const KeyTile<Config>& keys, int tile) {
  return maps.turns.additions + first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0) +
         tile;
}

/// Whether varlen sequences begin one behind another, so that each tile of theirs has a place of its own. By a whole
/// warp.
template <class Config>
__device__ __forceinline__ bool boundaries_ascend(const AttentionParams& params) {
  const VariableSequences<Config> sequences(params);
  bool ascend = true;
  for (int b = lane_id() + 1; b < params.batch; b += warp_size) {
    if constexpr (Config::sequences_q == SequenceKind::varlen)
      ascend = ascend && sequences.q_begin(b - 1) <= sequences.q_begin(b);
    if constexpr (Config::sequences_kv == SequenceKind::varlen)
      ascend = ascend && sequences.kv_begin(b - 1) <= sequences.kv_begin(b);
  }
  return __all_sync(full_warp, ascend);  // mutate: NobodyLooksAtThem
}

/// Whether blocks wait for one another. One that has all keys of a head adds in its own order. By a whole warp.
template <class Config>
__device__ __forceinline__ bool have_turns(const AttentionParams& params, const Turns& turns) {
  if constexpr (has_entry_lengths<Config>) {
    return boundaries_ascend<Config>(params);
  } else {
    return turns.visits.sharers > 1;
  }
}

/// Starts the copy of what says whose turn is when at a tile of queries, counted among those of the call. By one thread.
template <class Config>
__device__ __forceinline__ void load_turns(const AttentionParams& params, const Turns& turns,
                                           long long query_tile, int key_tile, unsigned place,
                                           unsigned full) {
  if constexpr (has_entry_lengths<Config>) {
    const int word = key_tile / turn_word_tiles;
    cp_async_bulk_load(
        place, turns.words + first_turn_word<Config>(params, query_tile) + word - word % turn_words_at_once,
        turn_count_bytes, full);
  } else {
    cp_async_bulk_load(place,
                       turns.before + first_turn_count<Config>(params, query_tile) + key_tile -
                           key_tile % turn_counts_at_once,
                       turn_count_bytes, full);
  }
}

/// How many add before a tile of keys, of what has been copied. By a whole warp.
template <class Config>
__device__ __forceinline__ int loaded_turn(unsigned place, int key_tile) {
  if constexpr (has_entry_lengths<Config>) {
    const unsigned word =
        // mutate: TheFirstOfTwoWords
        place + key_tile / turn_word_tiles % turn_words_at_once * static_cast<unsigned>(sizeof(TurnWord));
    return additions_before({static_cast<unsigned>(load_shared_by_warp(word)), load_shared_by_warp(word + 4)},
                            key_tile);
  } else {
    return load_shared_by_warp(place + key_tile % turn_counts_at_once * 4);
  }
}

/// The steps of a tile of keys, as a function of for_each_key_tile, of the warp that waits for turns, if there are any.
template <class Config>
__device__ __forceinline__ unsigned wait_for_turns(const AttentionParams& params, const TensorMaps& maps,
                                                   const KeyTile<Config>& keys, bool waits, unsigned step,
                                                   unsigned smem) {
  const Pipelines<Config> pipelines(smem);
  for (int info = 0; (info & last_dq_tile) == 0; ++step) {
    pipelines.q.consumer_wait(step);
    info = load_shared_by_warp(pipelines.dq_info(step));
    const int before = loaded_turn<Config>(pipelines.turn_counts(step), keys.k_begin / Config::tile_kv);
    pipelines.q.consumer_release(step);
    pipelines.turns.producer_acquire(step);
    if (lane_id() == 0 && waits) {
      wait_for_additions<Config>(additions<Config>(params, maps, keys, info & ~last_dq_tile),
                                 before * KernelTraits<Config>::dq_adders);  // mutate: OneOfTwoIsEnough
    }
    if (lane_id() == 0) store_shared(pipelines.turns.tile(step), before);
    pipelines.turns.producer_commit(step);
  }
  return step;
}

/// What stands in place of a tile of queries when no addition follows.
inline constexpr int no_addition = -1;

/// Says when what a consumer of dQ has added is there. By one of as many warps as there are stages, each of which has every
/// so many steps: it takes about a step until an addition is there.
template <class Config>
__device__ __forceinline__ void pass_turns(const TensorMaps& maps, unsigned own_stage, unsigned smem) {
  const Pipelines<Config> pipelines(smem);
#pragma unroll 1
  for (unsigned step = own_stage;; step += stages_turns) {
    pipelines.added.consumer_wait(step);
    const int tile = load_shared_by_warp(pipelines.added.tile(step));
    if (tile == no_addition) return;
    if (lane_id() == 0) add_one_release(maps.turns.additions + tile);  // mutate: TurnsAreNotPassedOn
    pipelines.added.consumer_release(step);
  }
}

/// Hands over what has been added to a tile of queries of the call, or that no addition follows. By each warp of a
/// consumer of dQ.
template <class Config>
__device__ __forceinline__ void hand_over_addition(const Pipelines<Config>& pipelines, unsigned step,
                                                   int tile) {
  pipelines.added.producer_acquire(step);
  if (threadIdx.x % warpgroup_size == 0) store_shared(pipelines.added.tile(step), tile);
  pipelines.added.producer_commit(step);
}

/// Waits until it is the turn of a step. Returns whether nobody adds before it, so that it stores: nobody has written zeros.
/// By each warp that adds dQ.
template <class Config>
__device__ __forceinline__ bool take_turn(const Pipelines<Config>& pipelines, unsigned step) {
  pipelines.turns.consumer_wait(step);
  const bool is_first = load_shared_by_warp(pipelines.turns.tile(step)) == 0;  // mutate: NobodyStores
  pipelines.turns.consumer_release(step);
  return is_first;
}

}  // namespace jit::backward_wgmma
