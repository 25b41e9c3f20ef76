// Tile infos: what the producer of keys tells those who compute about a tile of keys. Compiled by the host and by
// NVRTC.
#pragma once

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
  /// The next tile, if there is one, is of another span.
  key_info_span_end = 16384,
  /// The last tile for everyone.
  key_info_all_last = key_info_end | 7 * key_info_last,
};
/// No flags: nobody has read the tile info.
inline constexpr int key_flags_unknown = -1;

}  // namespace jit
