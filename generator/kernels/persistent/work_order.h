// The order in which a launch computes query tiles.
#pragma once

#include <cstdint>

#include <jit/spec.h>

#include "templates/scheduling/work_tiles.cuh"

namespace jit {

/// Sizes of a launch that determine its order.
struct WorkSize {
  int seqlen_q = 0;
  int seqlen_kv = 0;
  int slices = 0;  ///< query heads times batch entries
  int tile_q = 0;
  int blocks = 0;             ///< co-resident blocks
  std::int64_t l2_bytes = 0;  ///< of the device
};

/// The order of one launch's slices (see WorkOrder). Without a mask all tiles are alike: slice by slice, so
/// that blocks share keys. Under a mask, sections have nearly equal sizes, and the last quarter of listed
/// rows is deferred to the end, unless slices are short, since their keys would be read from memory again. If
/// a block mask lists rows by remaining work, each slice's longest rows come first, one wave, and two waves
/// of the shortest last.
WorkOrder work_order(const AttentionSpec& spec, const WorkSize& size);

/// The most keys of a section's slices: their number times keys per slice; heads that share keys count once.
int section_keys(const AttentionSpec& spec, std::int64_t l2_bytes);

/// The most batch entries of a launch whose mask has words of keys (templates/mainloop/key_word_ranges.cuh):
/// as many as a block's table can hold ranges for, one per tile of keys, but enough to give each of `blocks`
/// blocks several query tiles, of which an entry has `tiles_per_entry`; never more than the table's size.
int entries_with_key_words(int tiles_kv, std::int64_t tiles_per_entry, int blocks);

}  // namespace jit
