// The order in which blocks add to dQ in deterministic mode: sums of floats depend on it.
//
// An earlier kernel counts how many tiles of keys add before each one (write_turns.cuh). One warp of a block waits for
// these additions while dQ is computed. If a consumer adds dQ, another warp signals finished additions, so that the
// consumer need not wait for them. The first block to add stores, so that dQ needs no zeros.
//
// Blocks draw tiles of keys in the order in which they add, and wait for those drawn before. The last tile of keys of a
// head adds first, and tiles of queries are visited in ascending order (turn_tiles.cuh): under a causal mask each block
// begins at its own diagonal, at least two steps behind the block before. Other heads take the reverse of both orders,
// so that no launch ends with its longest tiles (tensor_maps.cuh). If the boundaries of varlen sequences are not
// ascending, so that places of tiles may be empty, no block waits.
//
// If every query sees every key, or keys arrive from other devices, blocks share heads instead, and tiles of keys add in
// the order of the scheduled times of their visits (visits.cuh): if all steps take equally long, no block waits. There
// is no deadlock: a block waits only for steps with earlier times, of blocks that share its head, and these begin one
// after another (key_tile_scheduler.cuh).
#pragma once

#include "backward/key_tile.cuh"
#include "backward/visits.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"
#include "mainloop/arrival_table.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/masks.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// How tiles of keys are assigned to blocks.
enum class Schedule { any, shared_heads, drawn };
template <class Config>
inline constexpr Schedule schedule_of =
    !Config::deterministic ? Schedule::any
    : !has_entry_lengths<Config> && (keeps_every_score<typename Config::Mask> || has_arrivals<Config>)
        ? Schedule::shared_heads
        : Schedule::drawn;

/// Whether the last tile of keys of a KV head of a batch entry, or varlen sequence, adds first, if blocks draw tiles.
JIT_DEVICE bool last_adds_first(const AttentionParams& params, const Turns& turns, int batch, int kv_head) {
  return batch * params.heads_kv + kv_head < turns.heads_from_last;  // mutate: AllHeadsBeginWithTheFirstTile
}

/// The visits of the tiles of queries of each head by a block with tile `keys`.
template <class Config>
JIT_DEVICE Visits own_visits(const AttentionParams& params, const HeadVisits& visits,
                             const KeyTile<Config>& keys) {
  return visits.visits(keys.k_begin / Config::tile_kv,
                       visits.begins_backward(keys.batch * params.heads_kv + keys.kv_head));
}

/// The index of the count, or word, of key tile 0 at a tile of queries; tiles of queries are counted in the call.
template <class Config>
JIT_DEVICE long long first_turn(const AttentionParams& params, long long query_tile) {
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    return query_tile *  // mutate: WordsOfTheFirstTileOfQueries
           padded_turn_words(varlen_tiles(params.batch, params.sequences.total_k, Config::tile_kv));
  } else {
    const int key_tiles = key_tiles_of_head<Config>(params);
    return query_tile *
           (has_entry_lengths<Config> ? padded_turn_words(key_tiles) : padded_turn_counts(key_tiles));
  }
}

/// The number of additions before that of tile `key_tile`, whose word this is.
JIT_DEVICE int additions_before(const TurnWord& word, int key_tile, bool last_is_first) {
  const unsigned behind = ~0u << key_tile % turn_word_tiles;  // mutate: ATileIsBeforeItself
  return word.before + __popc(word.adds & (last_is_first ? behind << 1 : ~behind));
}

/// Whether the boundaries of varlen sequences ascend, so that each tile has a place of its own. By a whole warp.
template <class Config>
JIT_DEVICE bool boundaries_ascend(const AttentionParams& params) {
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

/// Whether blocks wait for each other; a block with all keys of a head adds in its own order. By a whole warp.
template <class Config>
JIT_DEVICE bool have_turns(const AttentionParams& params, const Turns& turns) {
  if constexpr (has_entry_lengths<Config>) {
    return boundaries_ascend<Config>(params);
  } else {
    return schedule_of<Config> == Schedule::drawn || turns.visits.sharers > 1;
  }
}

/// Starts the copy of the counts, or words, of a tile of queries, counted in the call. By one thread.
template <class Config>
JIT_DEVICE void load_turns(const AttentionParams& params, const Turns& turns, long long query_tile,
                           int key_tile, unsigned place, unsigned full) {
  const long long first = first_turn<Config>(params, query_tile);
  if constexpr (has_entry_lengths<Config>) {
    const int word = key_tile / turn_word_tiles;
    cp_async_bulk_load(place, turns.words + first + word - word % turn_words_at_once, turn_count_bytes, full);
  } else {
    cp_async_bulk_load(place, turns.before + first + key_tile - key_tile % turn_counts_at_once,
                       turn_count_bytes, full);
  }
}

/// The number of additions before that of a tile of keys, from the copied counts or words. By a whole warp.
template <class Config>
JIT_DEVICE int loaded_turn(unsigned place, int key_tile, bool last_is_first) {
  if constexpr (has_entry_lengths<Config>) {
    const unsigned word =
        // mutate: TheFirstOfTwoWords
        place + key_tile / turn_word_tiles % turn_words_at_once * static_cast<unsigned>(sizeof(TurnWord));
    return additions_before({static_cast<unsigned>(load_shared_by_warp(word)), load_shared_by_warp(word + 4)},
                            key_tile, last_is_first);
  } else {
    return load_shared_by_warp(place + key_tile % turn_counts_at_once * 4);
  }
}

}  // namespace jit
