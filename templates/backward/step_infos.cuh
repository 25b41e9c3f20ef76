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
inline constexpr int query_info_partial = 1;  ///< the tile must be masked
inline constexpr int query_info_end = 2;      ///< the last tile of queries for these keys

/// A flag in the dQ info of a step, which holds the index of its tile of queries in the batch entry: the step is the
/// last one of the tile of keys.
inline constexpr int last_dq_tile = 1 << 30;

/// Bytes of the info of a tile of keys: its index, and whether queries see it.
inline constexpr int key_info_bytes = 8;

/// Stages of the pipelines of turns and of finished additions (turns.cuh).
inline constexpr int stages_turns = 2;

}  // namespace jit
