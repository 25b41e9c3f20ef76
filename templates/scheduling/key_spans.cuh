// Cuts work tiles whose keys are split into fixed spans. Host and NVRTC compile this file.
//
// A span is a fixed number of tiles of keys of a sequence, counted from its key 0, whatever else is in the batch. Blocks take
// work ranges as in scheduling/key_shares.cuh, but a work tile in which two work ranges meet is cut between two spans, at the
// nearest boundary. So a block may have up to one span more or less than its work range.
#pragma once

#include "base/host_device.cuh"
#include "scheduling/key_shares.cuh"

namespace jit {

/// Shares of a strand, as cut_shares(), whose work tiles are cut only between spans; work ranges are never shorter than
/// a span.
JIT_HOST_DEVICE constexpr KeyShares cut_span_shares(const TileSpace& tile_space, int blocks, int num_splits,
                                                    int span_tiles) {
  const int span = tile_cost * span_tiles;
  int length = more_than_quotient(tile_space.total, blocks);
  const int work_tile = work_tile_length(tile_space.most_tiles);
  if (length < span) length = span;
  const int even = rounded_up_quotient(length, span) * span;  // the longest work range of any division
  const bool is_countable = tile_space.total > 0 && tile_space.total >> 20 < work_tile;  // by small_quotient
  if (tile_space.least_tiles == tile_space.most_tiles && is_countable) {
    const int work_tiles = small_quotient(tile_space.total, work_tile);
    if (work_tiles >= blocks) {  // whole work tiles, as many for each block
      const int range = work_tile * rounded_up_quotient(work_tiles, blocks);
      if (range <= even + span / 2) return {tile_space.total, range, num_splits, work_tile, work_tile, false};
    } else {  // each of them cut alike: no block has splits of two
      const int spans =
          tile_space.most_tiles > 0 ? rounded_up_quotient(tile_space.most_tiles, span_tiles) : 1;
      int most_splits = small_quotient(blocks, work_tiles);
      if (num_splits > 0 && most_splits > num_splits) most_splits = num_splits;
      const int of_split = rounded_up_quotient(spans, most_splits);
      const int splits = rounded_up_quotient(spans, of_split), range = span * of_split;
      if (range <= even || most_splits == num_splits)
        return {work_tiles * splits * range, range, num_splits, work_tile, splits * range, false};
    }
  }
  if (num_splits > 1) {
    const int least = more_than_quotient(tile_space.most_tiles * tile_cost, num_splits - 1);
    if (length < least) length = least;
  }
  return {tile_space.total, length, num_splits, 0, 0, false};
}

/// Shares of a tile space for `blocks` blocks, as key_shares(), cut only between spans.
JIT_HOST_DEVICE constexpr KeyShares span_shares(const TileSpace& tile_space, int blocks, int num_splits,
                                                int span_tiles) {
  return shares_of(tile_space, blocks, num_splits, [&](const TileSpace& strand, int of_strand) {
    return cut_span_shares(strand, of_strand, num_splits, span_tiles);
  });
}

/// A work tile for span_split(): its begin in the tile space, and its tiles of keys, counted from key 0.
struct WorkTileCuts {
  int tile_space_begin;
  int range_length;  ///< of each block's work ranges
  int tile_begin;
  int tile_end;

  JIT_HOST_DEVICE constexpr int span_begin(int span_tiles) const { return tile_begin / span_tiles; }
  JIT_HOST_DEVICE constexpr int span_end(int span_tiles) const {
    return tile_begin == tile_end ? span_begin(span_tiles) : rounded_up_quotient(tile_end, span_tiles);
  }
  /// The first span of block `block`, if this were the only work tile; earlier spans belong to earlier blocks.
  JIT_HOST_DEVICE constexpr int first_span(int block, int span_tiles) const {
    const int place = block * range_length - tile_space_begin;
    if (place <= 0) return span_begin(span_tiles);
    const int tile = tile_begin + rounded_up_quotient(place, tile_cost);
    return tile >= tile_end ? span_end(span_tiles) : (tile + span_tiles / 2) / span_tiles;
  }
};

/// The block's split of a work tile.
JIT_HOST_DEVICE constexpr WorkTileSplit span_split(const KeyShares& shares, const WorkTileCuts& cuts,
                                                   int block, int span_tiles) {
  const int tiles = cuts.tile_end - cuts.tile_begin;
  if (shares.is_scheduled) return {0, tiles, 1, block, true};
  int first_block = small_quotient(cuts.tile_space_begin, shares.length);
  if (shares.num_splits == 1 || tiles == 0) return {0, tiles, 1, first_block, first_block == block};
  int last_block = small_quotient(cuts.tile_space_begin + tile_cost * (tiles - 1), shares.length);
  // A block with less than half a span of the work tile has no split of it.
  if (first_block < last_block && cuts.first_span(first_block + 1, span_tiles) == cuts.span_begin(span_tiles))
    ++first_block;
  if (first_block < last_block && cuts.first_span(last_block, span_tiles) == cuts.span_end(span_tiles))
    --last_block;
  const auto tile_of =
      [&](int next_block) {  // where the earlier blocks end, counted from the work tile's first tile
        const int tile = cuts.first_span(next_block, span_tiles) * span_tiles - cuts.tile_begin;
        return tile < 0 ? 0 : tile > tiles ? tiles : tile;
      };
  return {.tile_begin = block <= first_block ? 0 : tile_of(block),
          .tile_end = block >= last_block ? tiles : tile_of(block + 1),
          .splits = last_block - first_block + 1,
          .first_block = first_block,
          .is_mine = block >= first_block && block <= last_block};
}

}  // namespace jit
