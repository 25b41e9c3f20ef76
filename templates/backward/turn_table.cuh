// Where it is recorded how many tiles of keys add to a tile of queries before each one (turns.cuh). Written by the kernel
// that runs before (write_turns.cuh). Compiled by the host and by NVRTC.
//
// Of dense sequences counts: (tiles of queries of the call, tiles of keys of a head, rounded up), so that four of them can be
// copied at once. Of sequences whose lengths the device alone knows, words: (tiles of queries of the call, words of a head's
// tiles of keys, rounded up), so that two of them can be copied at once, with a bit for each tile of keys, counted within
// its sequence.
#pragma once

#include "backward/visits.cuh"
#include "base/host_device.cuh"

namespace jit {

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
