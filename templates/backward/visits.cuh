// The order in which blocks that share the keys of a head visit its tiles of queries in deterministic mode
// (Schedule::shared_heads). Host and NVRTC compile this file.
//
// Blocks take tiles of keys in rounds, one each (key_tile_scheduler.cuh). In a forward round each block begins at its
// own diagonal, ascends to the last tile of queries, and continues with the first one, unless the mask skips these: so
// no two blocks are at the same tile of queries at a time. A backward round is a forward round in reverse. Rounds
// alternate: under a causal mask, where later tiles of keys have fewer queries, blocks that begin a forward round
// together also end the following backward round together. ("DASH: Deterministic Attention Scheduling for
// High-throughput Reproducible LLM Training" has schedules of this kind.)
//
// The time of a step is its time in a schedule without waits. The step with the lower time adds first; of two equal
// ones, that of the lower tile of keys. The times of a block ascend. So the earliest unfinished step never waits,
// whatever the mask skips.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The tiles of queries of one head, in the order in which a block visits them with one tile of keys.
struct Visits {
  int query_tiles;
  int first;  ///< the tile at place 0; −1 wraps to the last one
  int step;   ///< 1, or −1 in a backward round

  /// The tile at place `place`, from 0, and its inverse.
  JIT_HOST_DEVICE constexpr int query_tile(int place) const { return wrapped(first + step * place); }
  JIT_HOST_DEVICE constexpr int place(int query_tile) const { return wrapped(step * (query_tile - first)); }

 private:
  JIT_HOST_DEVICE constexpr int wrapped(int x) const {
    return x < 0 ? x + query_tiles : x < query_tiles ? x : x - query_tiles;
  }
};

/// The most blocks that share a head: more than any GPU has SMs.
inline constexpr int max_sharers = 256;

/// Visits of all KV heads of a call. The first round of a head is a forward one, unless it `begins_backward`.
struct HeadVisits {
  int query_tiles;    ///< of a query head
  int sharers;        ///< blocks that share a KV head, and tiles of keys of a round
  int heads_at_once;  ///< KV heads
  int rounds;         ///< rounds of a head
  int spacing;        ///< tiles of queries between the beginnings of forward visits of neighbors, at least 1
  bool is_whole;      ///< whether every query sees every key, so that visits of a round may begin far apart

  JIT_HOST_DEVICE constexpr int round(int key_tile) const { return rounds == 1 ? 0 : key_tile / sharers; }
  /// Whether a head begins with a backward round. `kv_head` counts heads of all batch entries.
  JIT_HOST_DEVICE constexpr bool begins_backward(int kv_head) const {
    return kv_head / heads_at_once * rounds % 2 != 0;
  }
  JIT_HOST_DEVICE constexpr bool is_backward(int key_tile, bool begins_backward) const {
    return begins_backward != (round(key_tile) % 2 != 0);
  }

  JIT_HOST_DEVICE constexpr Visits visits(int key_tile, bool begins_backward) const {
    const int offset = (is_whole ? key_tile % sharers : key_tile) * spacing;
    const int begin = offset < query_tiles || query_tiles == 0 ? offset : offset % query_tiles;
    return is_backward(key_tile, begins_backward) ? Visits{query_tiles, begin - 1, -1}
                                                  : Visits{query_tiles, begin, 1};
  }

  /// Whether tile `other` of the same round, before which earlier rounds add, adds to tile `query_tile` before `own` does, in the `head`-th query
  /// head that shares the keys.
  JIT_HOST_DEVICE constexpr bool is_before(int other, int own, int head, int query_tile,
                                           bool begins_backward) const {
    const int others_time = time(other, head, query_tile, begins_backward);
    const int own_time = time(own, head, query_tile, begins_backward);
    return others_time < own_time || (others_time == own_time && other < own);
  }

  /// The time of a step since the beginning of its round.
  JIT_HOST_DEVICE constexpr int time(int key_tile, int head, int query_tile, bool begins_backward) const {
    return head * query_tiles + visits(key_tile, begins_backward).place(query_tile);
  }
};

// The record of how many tiles of keys add to a tile of queries before each one (turns.cuh). An earlier kernel writes
// it (write_turns.cuh). Host and NVRTC compile this file.
//
// Dense sequences have counts, (tiles of queries of the call, tiles of keys of a head), padded so that four are copied
// at once. Sequences with lengths known only on the device have words, (tiles of queries of the call, words of a head's
// tiles of keys), padded so that two are copied at once, with a bit for each tile of keys of a sequence.

/// A bit for each of 32 tiles of keys that adds to a tile of queries, and the number of additions by tiles of other words
/// that come before.
struct TurnWord {
  unsigned adds;
  int before;
};

/// How blocks take turns to add to dQ (turns.cuh). An earlier kernel writes the arrays.
struct Turns {
  HeadVisits visits;  ///< if blocks share heads
  int* additions;     ///< additions to each tile of queries so far; zeros before the kernel
  int* before;        ///< number of tiles of keys that add before each one; aligned to 16 bytes
  TurnWord* words;    ///< replaces `before` if lengths are known only on the device
  int heads_from_last;  ///< if blocks draw tiles: first KV heads of the call, whose last tile of keys adds first
};

/// Bytes of turn counts that are copied at once, and the number of tiles of keys that they are for.
inline constexpr int turn_count_bytes = 16, turn_counts_at_once = 4;
JIT_HOST_DEVICE constexpr int padded_turn_counts(int key_tiles) {
  return (key_tiles + turn_counts_at_once - 1) / turn_counts_at_once * turn_counts_at_once;
}
/// Tiles of keys of a word of turn bits, and words that are copied at once.
inline constexpr int turn_word_tiles = 32, turn_words_at_once = 2;
JIT_HOST_DEVICE constexpr int padded_turn_words(long long key_tiles) {
  constexpr int at_once = turn_word_tiles * turn_words_at_once;
  return static_cast<int>((key_tiles + at_once - 1) / at_once * turn_words_at_once);
}

}  // namespace jit
