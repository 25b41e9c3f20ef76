// In which order the tiles of queries of a launch are computed.
#pragma once

#include <cstdint>

#include <jit/spec.h>

#include "templates/scheduling/work_tiles.cuh"

namespace jit {

/// Sizes of a launch that are known when its work is put in order.
struct WorkSize {
  int seqlen_q = 0;
  int seqlen_kv = 0;
  int slices = 0;  ///< query heads of all its batch entries
  int tile_q = 0;
  int blocks = 0;             ///< that work at a time
  std::int64_t l2_bytes = 0;  ///< of the device
};

/// The order for the slices of one launch; see WorkOrder. Without a mask all tiles are alike: slice after
/// slice, so that blocks read the same keys at the same time. Under a mask sections are of nearly the same
/// size, and the last quarter of the rows that are listed goes to the end, unless slices are short: their
/// keys would be read from memory once more. Where the rows of a block mask are listed by what is left of them, the
/// longest work of all slices comes first, as much as all blocks take at once, and twice as much of the shortest last.
WorkOrder work_order(const AttentionSpec& spec, const WorkSize& size);

/// Keys of as many slices as a section may have: their number times that of the keys of each, which heads that share keys
/// count once.
int section_keys(const AttentionSpec& spec, std::int64_t l2_bytes);

/// How many batch entries a launch takes at most if the mask has words of keys
/// (templates/mainloop/key_word_ranges.cuh): as many as a block's table has a range for each of their
/// `tiles_kv` tiles of keys, but enough to give `blocks` blocks several tiles of queries each, of which an
/// entry has `tiles_per_entry`; never more than the table has places.
int entries_with_key_words(int tiles_kv, std::int64_t tiles_per_entry, int blocks);

}  // namespace jit
