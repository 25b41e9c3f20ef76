// The order in which blocks that share the keys of a head visit its tiles of queries in deterministic mode. Host and NVRTC
// compile this file.
//
// Blocks take tiles of keys in rounds, one each (key_tile_scheduler.cuh). In a forward round each block begins at its own
// diagonal, ascends to the last tile of queries, and goes on with the first one, as far as the mask leaves these: so no two
// blocks are at the same tile of queries at a time. A backward round is a forward round in reverse. Rounds alternate: under a
// causal mask, where later tiles of keys have fewer queries, blocks that begin a forward round together also end the following
// backward round together. ("DASH: Deterministic Attention Scheduling for High-throughput Reproducible LLM Training" has
// schedules of this kind.)
//
// The time of a step is its time in a schedule without waits. The step with the lower time adds first, and of two equal ones
// that of the lower tile of keys. The times of a block ascend. So the earliest unfinished step never waits, whatever the mask
// leaves out.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The tiles of queries of one head, in the order in which a block visits them with one tile of keys.
struct Visits {
  int query_tiles;
  int first;  ///< the tile at place 0, or one next to the ends of the row
  int step;   ///< 1, or −1 in a backward round

  /// The tile at place `place`, from 0, and its inverse.
  JIT_HOST_DEVICE constexpr int query_tile(int place) const { return wrapped(first + step * place); }
  JIT_HOST_DEVICE constexpr int place(int query_tile) const { return wrapped(step * (query_tile - first)); }

 private:
  JIT_HOST_DEVICE constexpr int wrapped(int x) const {
    return x < 0 ? x + query_tiles : x < query_tiles ? x : x - query_tiles;
  }
};

/// Blocks that share a head at most: more than any GPU has multiprocessors.
inline constexpr int max_sharers = 256;

/// Tiles of keys from `begin` to `end`.
struct KeyTiles {
  int begin;
  int end;
};

/// Visits of all KV heads of a call. The first round of a head is a forward one, unless it `begins_backward`.
struct HeadVisits {
  int query_tiles;    ///< of a query head
  int query_heads;    ///< that share a KV head
  int sharers;        ///< blocks that share a KV head, and tiles of keys of a round
  int heads_at_once;  ///< KV heads
  int rounds;         ///< of a head
  int spacing;        ///< tiles of queries between the beginnings of forward visits of neighbors, at least 1
  /// Whether each tile of keys sees `spacing` tiles of queries less than the one before, and the first one all.
  bool is_triangle;
  bool is_whole;  ///< whether all see all, so that those of a round may begin far from each other

  JIT_HOST_DEVICE constexpr int round(int key_tile) const { return rounds == 1 ? 0 : key_tile / sharers; }
  /// `kv_head` is counted among those of all batch entries. Blocks go on from head to head.
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

  /// Tiles of keys whose times mix with those of `key_tile`: tiles before them add before it does, and tiles
  /// behind them behind it. In a triangle blocks are through with a forward round one after another, and go
  /// on with the backward one.
  JIT_HOST_DEVICE constexpr KeyTiles contested(int key_tile, bool begins_backward) const {
    const int own = round(key_tile);
    const bool is_second = own % 2 != (begins_backward ? 1 : 0);
    const int first = is_triangle && is_second && own > 0 ? own - 1 : own;
    const int behind = is_triangle && !is_second ? own + 2 : own + 1;
    return {first * sharers, behind * sharers};
  }

  /// Whether `other`, of those that are contested, adds to tile `query_tile` of the `head`-th query head of those that share
  /// the keys before `own` does.
  JIT_HOST_DEVICE constexpr bool is_before(int other, int own, int head, int query_tile,
                                           bool begins_backward) const {
    const int others_time = time(other, head, query_tile, begins_backward);
    const int own_time = time(own, head, query_tile, begins_backward);
    return others_time < own_time || (others_time == own_time && other < own);
  }

  /// The time of a step, from the beginning of its round, or, in a triangle, of the forward round of two.
  JIT_HOST_DEVICE constexpr int time(int key_tile, int head, int query_tile, bool begins_backward) const {
    const Visits own = visits(key_tile, begins_backward);
    if (!is_triangle) return head * query_tiles + own.place(query_tile);
    const int unseen = spacing * key_tile, seen = query_tiles - unseen;
    if (own.step > 0) return head * seen + own.place(query_tile);
    const int before =
        2 * round(key_tile) * sharers - 1 - key_tile;  // that the same block had in the round before
    return query_heads * (query_tiles - spacing * before) + head * seen + own.place(query_tile) - unseen;
  }
};

// Records how many tiles of keys add to a tile of queries before each one (turns.cuh). A kernel that runs before writes the
// record (write_turns.cuh). Host and NVRTC compile this file.
//
// Dense sequences have counts, (tiles of queries of the call, tiles of keys of a head), rounded up so that four are copied at
// once. Sequences whose lengths only the device knows have words, (tiles of queries of the call, words of a head's tiles of
// keys), rounded up so that two are copied at once, with a bit for each tile of keys, counted within its sequence.

/// Which of 32 tiles of keys add to a tile of queries, and how many of those in front of them do (turns.cuh).
struct TurnWord {
  unsigned adds;
  int before;
};

/// How blocks take turns to add to dQ, where they do (turns.cuh). Arrays are written by the kernel that runs before.
struct Turns {
  HeadVisits visits;  ///< of dense sequences
  int* additions;     ///< to each tile of queries, zeros before the kernel
  int* before;        ///< how many tiles of keys add before each, from a multiple of 16 bytes on
  TurnWord* words;    ///< in its place where the device alone knows lengths
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
