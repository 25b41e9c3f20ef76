// Tile infos in shared memory, by which the producer of a one-pass kernel describes tiles to the other warps. Host and
// NVRTC compile this file.
#pragma once

namespace jit {

/// Tile info of a tile of queries.
struct QueryTileInfo {
  int head;   ///< query head
  int query;  ///< first query
  int flags;
};
inline constexpr int query_info_partial = 1;  ///< some score of the tile must be dropped
inline constexpr int query_info_end = 2;      ///< the last tile of queries for these keys

/// The record of dQ of a step: the index of its tile among those of the batch entry, and whether it is the last
/// one of the tile of keys.
inline constexpr int last_dq_tile = 1 << 30;

/// Two int of a tile of keys: which it is, and whether queries see it.
inline constexpr int key_info_bytes = 8;

/// Steps whose turn has come, and those whose additions wait for it to be said that they are there (turns.cuh).
inline constexpr int stages_turns = 2;

}  // namespace jit
