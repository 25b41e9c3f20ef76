// How units are cut whose keys are summed in fixed spans. Compiled by the host and by NVRTC.
//
// A span is so many tiles of keys of a sequence, counted from its key 0, whatever stands beside it in the batch. Blocks
// take pieces of the line as in scheduling/key_shares.cuh, but where two pieces meet within a unit it is cut between two
// spans, at the place that is nearest. So a block may have up to a span more or less than its piece.
#pragma once

#include "base/host_device.cuh"
#include "scheduling/key_shares.cuh"

namespace jit {

/// Shares of a strand whose units are cut between spans, as cut_shares() has them; pieces are never shorter than a
/// span.
JIT_HOST_DEVICE constexpr KeyShares cut_span_shares(const LineSize& line, int blocks, int num_splits,
                                                    int span_tiles) {
  const int span = tile_cost * span_tiles;
  int length = more_than_quotient(line.total, blocks);
  const int unit = unit_length(line.most_tiles);
  if (length < span) length = span;
  const int even = rounded_up_quotient(length, span) * span;            // what some block has in any case
  const bool is_countable = line.total > 0 && line.total >> 20 < unit;  // by small_quotient
  if (line.least_tiles == line.most_tiles && is_countable) {
    const int units = small_quotient(line.total, unit);
    if (units >= blocks) {  // whole units, as many for each block
      const int piece = unit * rounded_up_quotient(units, blocks);
      if (piece <= even + span / 2) return {line.total, piece, num_splits, unit, unit, false};
    } else {  // each of them cut alike: no block has parts of two
      const int spans = line.most_tiles > 0 ? rounded_up_quotient(line.most_tiles, span_tiles) : 1;
      int most_parts = small_quotient(blocks, units);
      if (num_splits > 0 && most_parts > num_splits) most_parts = num_splits;
      const int of_part = rounded_up_quotient(spans, most_parts);
      const int parts = rounded_up_quotient(spans, of_part), piece = span * of_part;
      if (piece <= even || most_parts == num_splits)
        return {units * parts * piece, piece, num_splits, unit, parts * piece, false};
    }
  }
  if (num_splits > 1) {
    const int least = more_than_quotient(line.most_tiles * tile_cost, num_splits - 1);
    if (length < least) length = least;
  }
  return {line.total, length, num_splits, 0, 0, false};
}

/// Shares of a line for so many blocks, as key_shares() has them.
JIT_HOST_DEVICE constexpr KeyShares span_shares(const LineSize& line, int blocks, int num_splits,
                                                int span_tiles) {
  return shares_of(line, blocks, num_splits, [&](const LineSize& strand, int of_strand) {
    return cut_span_shares(strand, of_strand, num_splits, span_tiles);
  });
}

/// Where a unit is cut: its place on the line and its tiles of keys, counted from key 0 of the sequence.
struct UnitCuts {
  int line_begin;
  int piece_length;  ///< of each block's piece of the line
  int tile_begin;
  int tile_end;

  JIT_HOST_DEVICE constexpr int span_begin(int span_tiles) const { return tile_begin / span_tiles; }
  JIT_HOST_DEVICE constexpr int span_end(int span_tiles) const {
    return tile_begin == tile_end ? span_begin(span_tiles) : rounded_up_quotient(tile_end, span_tiles);
  }
  /// The first span of what is the block's, were there no other unit; those before it are earlier blocks'.
  JIT_HOST_DEVICE constexpr int first_span(int block, int span_tiles) const {
    const int place = block * piece_length - line_begin;
    if (place <= 0) return span_begin(span_tiles);
    const int tile = tile_begin + rounded_up_quotient(place, tile_cost);
    return tile >= tile_end ? span_end(span_tiles) : (tile + span_tiles / 2) / span_tiles;
  }
};

/// The part of a unit that is one block's.
JIT_HOST_DEVICE constexpr UnitPart span_part(const KeyShares& shares, const UnitCuts& cuts, int block,
                                             int span_tiles) {
  const int tiles = cuts.tile_end - cuts.tile_begin;
  if (shares.is_dealt) return {0, tiles, 1, block, true};
  int first_block = small_quotient(cuts.line_begin, shares.length);
  if (shares.num_splits == 1 || tiles == 0) return {0, tiles, 1, first_block, first_block == block};
  int last_block = small_quotient(cuts.line_begin + tile_cost * (tiles - 1), shares.length);
  // Blocks of which the unit has less than half a span have no part in it.
  if (first_block < last_block && cuts.first_span(first_block + 1, span_tiles) == cuts.span_begin(span_tiles))
    ++first_block;
  if (first_block < last_block && cuts.first_span(last_block, span_tiles) == cuts.span_end(span_tiles))
    --last_block;
  const auto tile_of = [&](int next_block) {  // where the blocks before it end, from the unit's first tile on
    const int tile = cuts.first_span(next_block, span_tiles) * span_tiles - cuts.tile_begin;
    return tile < 0 ? 0 : tile > tiles ? tiles : tile;
  };
  return {.tile_begin = block <= first_block ? 0 : tile_of(block),
          .tile_end = block >= last_block ? tiles : tile_of(block + 1),
          .parts = last_block - first_block + 1,
          .first_block = first_block,
          .is_mine = block >= first_block && block <= last_block};
}

}  // namespace jit
