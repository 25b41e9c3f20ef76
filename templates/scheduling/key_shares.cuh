// How the keys of all queries are shared out among blocks. Compiled by the host and by NVRTC.
//
// Work comes in units: a tile of rows with the tiles of keys that it sees. Laid end to end in a fixed order, the units
// are one line, which is cut into pieces of equal length, a piece for each block ("Stream-K", Osama et al.; "Lean
// Attention", Sanovar et al.). So all blocks end at about the same time, whatever the lengths of sequences, and a
// block has at most two units that it shares with others: the first and the last. Where all units are of one length,
// pieces are such that each is cut at the same places, or not at all, if that leaves few blocks without work. Where
// there are many units beside the longest one, and several of them see the same keys, they are dealt whole: blocks then
// read the same keys at about the same time, and find them in the L2 cache.
//
// Where there are fewer units, and several see the same keys, the line is split into strands that lie side by side:
// each has every so many-th tile of rows of all heads, and every so many-th block, and all are cut at the same places.
// So blocks side by side have the same keys of tiles of rows side by side, and compute them at the same time. On one
// line a block would compute these one after another, or blocks far apart would, and each would read the keys from
// memory.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The longest line: places on it and a little behind it are 32-bit numbers.
inline constexpr int longest_line = 0x7fffffff - 0x1000000;

/// What a tile of keys takes, and what a unit takes beside its tiles.
inline constexpr int tile_cost = 2;
inline constexpr int unit_cost = 1;

/// The length of a unit on the line.
JIT_HOST_DEVICE constexpr int unit_length(int tiles) { return tile_cost * tiles + unit_cost; }

/// Units that are alike are cut alike where that makes the longest piece of a block no longer than this beyond its share:
/// about what another part costs.
inline constexpr int spare_for_alike = 4 * tile_cost;

/// x / y, to 2^-22 of it.
JIT_HOST_DEVICE constexpr float rough_quotient(float x, float y) {
#ifdef __CUDA_ARCH__
  return __fdividef(x, y);
#else
  return x / y;
#endif
}

/// x / y, rounded down, for a quotient below 2^20 and positive y, without a division's many instructions.
JIT_HOST_DEVICE constexpr int small_quotient(int x, int y) {
  const int quotient = static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)));
  // Of a product beyond 32 bits what is left of x is right all the same.
  const int left =
      static_cast<int>(static_cast<unsigned>(x) - static_cast<unsigned>(quotient) * static_cast<unsigned>(y));
  return left < 0 ? quotient - 1 : left >= y ? quotient + 1 : quotient;
}

/// What is known of all units together.
struct LineSize {
  int total;         ///< sum of their lengths
  bool shares_keys;  ///< whether some units see the same keys
  int least_tiles;   ///< that a unit has
  int most_tiles;
  int strands = 1;  ///< of the line; if there are several, all units of a head count as its longest one
};

/// The part of a unit that is one block's.
struct UnitPart {
  int tile_begin;   ///< of the unit's tiles of keys
  int tile_end;     ///< equal to tile_begin for a unit without any
  int parts;        ///< that the unit has
  int first_block;  ///< whose the first part is; the others are those of the blocks behind it
  bool is_mine;     ///< else the block has no part
};

/// A block's place where the line is split into strands.
struct StrandPlace {
  int strand;
  int column;  ///< of the blocks with pieces of the same keys, one on each strand
};

/// Laid end to end, strands are one line again, of as many whole pieces each. Blocks are counted along it: the block
/// with piece i is block i. Where blocks that are counted as LineBlock does are on the line, `place` says.
struct KeyShares {
  int total;       ///< length of a strand; behind enter_strand(): where the block's own one ends on the line
  int length;      ///< of a block's piece of it
  int num_splits;  ///< 1: a unit is all of the block's in whose piece it begins
  int plain_length;  ///< of a unit, where all are alike and cut alike; else 0
  int cut_length;    ///< that it takes on the line then: so many whole pieces, or a whole part of one
  bool is_dealt;  ///< whether units are dealt whole, in turns: unit i is that of block i modulo their number
  int strands = 1;  ///< of the line: tile of rows r of a head is on strand r modulo their number
  int strand_blocks =
      0;  ///< of each strand; no more than have work, so that places on the line are 32-bit numbers

  /// Of a block as LineBlock counts them. Those side by side are on different strands, and those of a strand keep their
  /// order. Blocks that are left over have a column behind all others.
  JIT_HOST_DEVICE constexpr StrandPlace place(int block) const {
    if (strands == 1) return {0, block};
    const int column = small_quotient(block, strands);
    return {block - column * strands, column};
  }
  /// The block, counted along the line.
  JIT_HOST_DEVICE constexpr int block_at(const StrandPlace& place) const {
    return place.strand * strand_blocks + place.column;  // mutate: AllInTheSamePlaces
  }
  /// Whether a block has a piece in which there is work.
  JIT_HOST_DEVICE constexpr bool has_work(const StrandPlace& place) const {
    return place.column < strand_blocks;
  }
  /// Where a strand begins on the line.
  JIT_HOST_DEVICE constexpr int strand_begin(int strand) const { return strand * strand_blocks * length; }
  /// Makes these the shares as blocks of one strand see them.
  JIT_HOST_DEVICE constexpr void enter_strand(int strand) { total += strand_begin(strand); }

  JIT_HOST_DEVICE constexpr int begin(int block) const { return block * length; }
  JIT_HOST_DEVICE constexpr int end(int block) const { return begin(block) + length; }

  /// What a unit takes on the line.
  JIT_HOST_DEVICE constexpr int on_line(int tiles) const {
    return plain_length != 0 ? cut_length : unit_length(tiles);
  }
  /// What units take on the line whose lengths come to `sum`.
  JIT_HOST_DEVICE constexpr int all_on_line(int sum) const {
    return cut_length == plain_length ? sum : small_quotient(sum, plain_length) * cut_length;
  }

  /// Whether blocks may share units.
  JIT_HOST_DEVICE constexpr bool cuts_units() const {
    return !is_dealt && num_splits != 1 && (plain_length == 0 || length < cut_length);
  }

  JIT_HOST_DEVICE constexpr UnitPart part(int block, int unit_begin, int tiles) const {
    if (is_dealt) return {0, tiles, 1, block, true};
    const int first_block = small_quotient(unit_begin, length);
    if (num_splits == 1) return {0, tiles, 1, first_block, first_block == block};
    const int last_tile = tiles > 0 ? tiles - 1 : 0;
    const int last_block = small_quotient(unit_begin + tile_cost * last_tile, length);
    return {.tile_begin = tiles_before(begin(block) - unit_begin, tiles),
            .tile_end = tiles_before(end(block) - unit_begin, tiles),
            .parts = last_block - first_block + 1,
            .first_block = first_block,
            .is_mine = block >= first_block && block <= last_block};
  }

  /// Whether the last block of a unit that ends at `unit_end` has a part of the next one, too.
  JIT_HOST_DEVICE constexpr bool goes_on(const UnitPart& part, int unit_end) const {
    return unit_end < total && unit_end < end(part.first_block + part.parts - 1);
  }

 private:
  // Tiles of a unit that begin before a place on the line, counted from the unit's own beginning.
  static JIT_HOST_DEVICE constexpr int tiles_before(int place, int tiles) {
    if (place <= 0) return 0;
    const int before = (place + tile_cost - 1) / tile_cost;  // mutate: OneTileOfKeysTwice
    return before < tiles ? before : tiles;
  }
};

/// Units are dealt where the longest one is at most this part of a block's share.
inline constexpr int dealt_units = 6;

/// A little more than x / y: pieces need not be as short as can be, but equal, and enough.
JIT_HOST_DEVICE constexpr int more_than_quotient(int x, int y) {
  return static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)) * 1.000001f) + 1;
}

/// Most strands of a line: with so many a key is read from memory so rarely that more would change little.
inline constexpr int most_strands = 8;

/// Strands are not worth more than this part of the blocks, which would be left over.
inline constexpr int spared_for_strands = 16;

/// A set of numbers of strands: bit i is that of i.
using StrandNumbers = unsigned;

/// Those into which so many tiles of rows can be dealt, as many for each strand.
JIT_HOST_DEVICE constexpr StrandNumbers strands_of_rows(int row_tiles) {
  StrandNumbers numbers = 0;
#ifdef __CUDA_ARCH__
#  pragma unroll
#endif
  for (int strands = 1; strands <= most_strands; ++strands)
    numbers |= row_tiles % strands == 0 ? 1u << strands : 0;
  return numbers;
}

/// A number of strands is the better the higher this is. `numbers`: of all heads. All strands have the same number of
/// blocks: the number of strands is best that leaves the fewest over, and of several such the highest. Any is better
/// than one strand if it leaves few over.
JIT_HOST_DEVICE constexpr int strands_score(int strands, StrandNumbers numbers, int blocks) {
  if (strands > most_strands || (numbers >> strands & 1) == 0 || strands > blocks) return 0;
  const int left_over =
      strands == 1 ? blocks / spared_for_strands : blocks - small_quotient(blocks, strands) * strands;
  return (blocks - left_over) * (2 * most_strands) + strands;
}
/// The number of strands that has this score.
JIT_HOST_DEVICE constexpr int strands_of_score(int score) { return score % (2 * most_strands); }

/// Whether so little is lost when all units of a head count as its longest one that the line may be split into strands.
/// `even` is what all units come to then.
JIT_HOST_DEVICE constexpr bool may_have_strands(int total, int even) {
  constexpr int spared = 64;
  return even - total <= total / spared;
}

/// Whether units of the line are dealt.
JIT_HOST_DEVICE constexpr bool deals_units(const LineSize& line, int blocks) {
  return line.shares_keys &&
         more_than_quotient(line.total, blocks) / dealt_units >= unit_length(line.most_tiles);
}

/// Shares of a line whose units are dealt, or which is cut as cut(strand, blocks) says for each of its strands.
template <class Cut>
JIT_HOST_DEVICE constexpr KeyShares shares_of(const LineSize& line, int blocks, int num_splits, Cut cut) {
  if (deals_units(line, blocks))
    return {line.total, more_than_quotient(line.total, blocks), num_splits, 0, 0, true};
  LineSize strand = line;
  int strand_blocks = blocks;
  if (line.strands > 1) {
    strand.total = line.total / line.strands;
    strand_blocks = small_quotient(blocks, line.strands);
  }
  KeyShares shares = cut(strand, strand_blocks);
  shares.strands = line.strands;
  // Where `num_splits` makes pieces long, those of all blocks would come to more than the line is.
  const int with_work = small_quotient(shares.total - 1, shares.length) + 1;
  shares.strand_blocks = with_work < strand_blocks ? with_work : strand_blocks;
  return shares;
}

/// The same of a strand whose units are cut between any tiles.
JIT_HOST_DEVICE constexpr KeyShares cut_shares(const LineSize& line, int blocks, int num_splits) {
  int length = more_than_quotient(line.total, blocks);
  const int unit = unit_length(line.most_tiles);
  const bool is_countable = line.total > 0 && line.total >> 20 < unit;  // by small_quotient
  if (line.least_tiles == line.most_tiles && is_countable) {
    const int units = small_quotient(line.total, unit);
    if (units >= blocks) {  // whole units, as many for each block
      const int piece = unit * (small_quotient(units - 1, blocks) + 1);
      if (piece - length <= spare_for_alike) return {line.total, piece, num_splits, unit, unit, false};
    } else {  // each of them cut into as many parts as there are blocks for it
      int parts = small_quotient(blocks, units);
      if (num_splits > 0 && parts > num_splits) parts = num_splits;
      const int piece =
          tile_cost * (small_quotient(line.most_tiles + parts - 1, parts) + (line.most_tiles == 0));
      if (piece - length <= spare_for_alike || parts == num_splits)
        return {units * parts * piece, piece, num_splits, unit, parts * piece, false};
    }
  }
  if (length < tile_cost) length = tile_cost;
  if (num_splits > 1) {
    const int least = more_than_quotient(line.most_tiles * tile_cost, num_splits - 1);
    if (length < least) length = least;
  }
  return {line.total, length, num_splits, 0, 0, false};
}

/// Shares of a line for so many blocks. A unit is shared by at most `num_splits` of them; 0: by any number.
JIT_HOST_DEVICE constexpr KeyShares key_shares(const LineSize& line, int blocks, int num_splits) {
  return shares_of(line, blocks, num_splits, [&](const LineSize& strand, int of_strand) {
    return cut_shares(strand, of_strand, num_splits);
  });
}

}  // namespace jit
