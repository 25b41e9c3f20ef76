// What the loader of keys tells those who compute about a tile of keys. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

struct KeyNote {
  int k_begin;  ///< first key of the tile
  int flags;    ///< of KeyNoteFlags
};
enum KeyNoteFlags : int {
  key_note_partial = 1,  ///< some score of the tile must be dropped
  key_note_last = 2,     ///< the part's last tile
  key_note_none = 4,     ///< there is no tile: the rows see no key of the part
};

/// Parts that are kept: the key loader may be ahead of the one that consumers compute.
inline constexpr int stages_parts = 3;

}  // namespace jit
