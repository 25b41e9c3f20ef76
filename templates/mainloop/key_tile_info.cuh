// Tile infos: messages from the producer of keys to the consumers about a tile of keys. Host and NVRTC compile this
// file.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct KeyTileInfo {
  int k_begin;  ///< first key of the tile
  int flags;    ///< of KeyTileFlags
};

enum KeyTileFlags : int {
  key_info_partial = 1,  ///< some score of the tile must be dropped
  key_info_end = 2,      ///< the last tile of keys for these queries
  key_info_none = 4,     ///< there is no tile: these queries see no key
  /// The last tile for consumer 0; for consumer 1 and 2 twice, four times that.
  key_info_last = 8,
  /// Consumer 0 sees only the lower half; for consumer 1 and 2 twice, four times that.
  key_info_lower = 64,
  /// There are no more tiles for anybody, as converters are told.
  key_info_no_more = 512,
  /// The bits of its scores lie beside it.
  key_info_known = 1024,
  /// Consumer 0 sees nothing of this tile, which is one of the first ones in descending order; those of others follow.
  key_info_unseen = 2048,
  /// The next tile, if there is one, is of another span, which meets this one in a node of level 1; of a higher level so
  /// many times that.
  key_info_span_end = 16384,
  /// The last tile for everyone.
  key_info_all_last = key_info_end | 7 * key_info_last,
};
/// The level of the node where the span that ends with a tile meets the next one; 0: none ends.
JIT_HOST_DEVICE constexpr int level_of_span_end(int flags) { return flags / key_info_span_end % 32; }
/// No flags: no consumer has read the tile info.
inline constexpr int key_flags_unknown = -1;

}  // namespace jit
