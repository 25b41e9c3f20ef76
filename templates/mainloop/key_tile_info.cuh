// Tile infos: messages from the producer of keys to its consumers, one per tile of keys. Host and NVRTC compile this
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
  key_info_none = 4,     ///< no tile: the queries of this work tile see no key
  /// The last tile for consumer 0; for consumer 1 and 2 twice, four times that.
  key_info_last = 8,
  /// Consumer 0 sees only the lower half; for consumer 1 and 2 twice, four times that.
  key_info_lower = 64,
  /// The end of all tiles, for converters.
  key_info_no_more = 512,
  /// The tile's mask bits accompany it.
  key_info_mask_bits = 1024,
  /// In descending order: consumer 0 sees nothing of this tile; for consumer 1 and 2 twice, four times that.
  key_info_skipped = 2048,
  /// The tile ends its span, which meets the next one at level 1 of the tree; n times this flag: at level n.
  key_info_span_end = 16384,
  /// The last tile for everyone.
  key_info_all_last = key_info_end | 7 * key_info_last,
};
/// The tree level at which the span that ends with a tile meets the next one; 0: no span ends.
JIT_HOST_DEVICE constexpr int level_of_span_end(int flags) { return flags / key_info_span_end % 32; }
/// No flags: no consumer has read the tile info.
inline constexpr int key_flags_unknown = -1;

}  // namespace jit
