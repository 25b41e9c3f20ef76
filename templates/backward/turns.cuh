// The order in which blocks add to dQ in deterministic mode: sums of floats depend on it.
//
// Tiles of keys that the mask keeps add in the order of the scheduled times of their visits (visits.cuh): if all steps
// take equally long, no block waits. An earlier kernel counts how many tiles add before each one (write_turns.cuh). One
// warp of a block waits for these additions while dQ is computed. If a consumer adds dQ, another warp signals finished
// additions, so that the consumer need not wait for them. The first block to add stores, so that dQ needs no zeros.
//
// There is no deadlock: a block waits only for steps with earlier times, of blocks that share its head, and these begin one
// after another (key_tile_scheduler.cuh).
//
// If lengths are known only on the device, the first tile of keys adds first (visits.cuh), and tiles of queries are
// visited in descending order (turn_tiles.cuh). Blocks draw tiles of keys in ascending order and wait for those drawn
// before. If the boundaries of sequences are not ascending, so that places of tiles may be empty, no block waits.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/visits.cuh"
#include "base/params.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

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
JIT_DEVICE int additions_before(const TurnWord& word, int key_tile) {
  // mutate: ATileIsBeforeItself
  return word.before + __popc(word.adds & ~(~0u << key_tile % turn_word_tiles));
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
    return turns.visits.sharers > 1;
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
JIT_DEVICE int loaded_turn(unsigned place, int key_tile) {
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

}  // namespace jit
