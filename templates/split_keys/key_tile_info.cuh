// What the producer of keys tells those who compute about a tile of keys. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

struct KeyTileInfo {
  int k_begin;  ///< first key of the tile
  int flags;    ///< of KeyTileFlags
};
enum KeyTileFlags : int {
  key_info_partial = 1,  ///< some score of the tile must be dropped
  key_info_last = 2,     ///< the split's last tile
  key_info_none = 4,     ///< there is no tile: the rows see no key of the split
};

/// Splits that are kept: the key producer may be ahead of the one that consumers compute.
inline constexpr int stages_splits = 3;

}  // namespace jit
