// Distributes the keys of all queries over blocks. Host and NVRTC compile this file.
//
// A work tile is a tile of rows with the tiles of keys that it sees. Laid end to end in a fixed order, the work tiles
// form one tile space, which is cut into work ranges of equal length, one for each block ("Stream-K", Osama et al.;
// "Lean Attention", Sanovar et al.). So all blocks end at about the same time, whatever the lengths of sequences, and a
// block shares at most two work tiles with others: its first and its last. If all work tiles have one length, work
// ranges are chosen so that each work tile is cut at the same places, or not at all if that leaves few blocks idle. If
// work tiles are many and short, and several see the same keys, they are scheduled whole: blocks then read the same
// keys at about the same time, and find them in the L2 cache.
//
// If work tiles are fewer, and several see the same keys, the tile space is split into n parallel strands. Strand i has
// every n-th tile of rows of all heads and every n-th block, from the i-th on, and all strands are cut at the same
// places. So adjacent blocks read the same keys for adjacent tiles of rows at the same time. In one tile space one
// block, or distant ones, would compute these tiles, and each would read the keys from memory.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The longest tile space: places on it and a little behind it are 32-bit numbers.
inline constexpr int longest_tile_space = 0x7fffffff - 0x1000000;

/// The cost of a tile of keys, and the fixed cost of a work tile.
inline constexpr int tile_cost = 2;
inline constexpr int work_tile_cost = 1;

/// The length of a work tile in the tile space.
JIT_HOST_DEVICE constexpr int work_tile_length(int tiles) { return tile_cost * tiles + work_tile_cost; }

/// Equal work tiles are cut at equal places if that lengthens the longest work range by at most this much, which is
/// about the cost of another split.
inline constexpr int spare_for_alike = 4 * tile_cost;

/// x / y, with a relative error of up to 2^-22.
JIT_HOST_DEVICE constexpr float rough_quotient(float x, float y) {
#ifdef __CUDA_ARCH__
  return __fdividef(x, y);
#else
  return x / y;
#endif
}

/// x / y, rounded down, for a quotient below 2^20 and positive y; cheaper than an integer division.
JIT_HOST_DEVICE constexpr int small_quotient(int x, int y) {
  const int quotient = static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)));
  // If the product overflows 32 bits, the difference is still correct.
  const int left =
      static_cast<int>(static_cast<unsigned>(x) - static_cast<unsigned>(quotient) * static_cast<unsigned>(y));
  return left < 0 ? quotient - 1 : left >= y ? quotient + 1 : quotient;
}

/// Properties of the tile space of all work tiles.
struct TileSpace {
  int total;         ///< sum of their lengths
  bool shares_keys;  ///< whether some work tiles see the same keys
  int least_tiles;   ///< fewest tiles of a work tile
  int most_tiles;
  /// Number of strands; with several, all work tiles of a head count as its longest one.
  int strands = 1;
};

/// One block's split of a work tile.
struct WorkTileSplit {
  int tile_begin;   ///< of the work tile's tiles of keys
  int tile_end;     ///< equal to tile_begin for a work tile without any
  int splits;       ///< number of splits of the work tile
  int first_block;  ///< block of the first split; later splits belong to the following blocks
  bool is_mine;     ///< whether the block has a split
};

/// A block's position if the tile space is split into strands.
struct StrandPlace {
  int strand;
  int column;  ///< of the blocks with work ranges of the same keys, one on each strand
};

/// How blocks share the tile space. Laid end to end, strands with equally many work ranges each form one tile space
/// again, and block i has work range i. `place` converts from TileSpaceBlock's numbers of blocks.
struct KeyShares {
  /// Length of a strand; after enter_strand(), the end of the block's own strand in the tile space.
  int total;
  int length;        ///< length of a block's work range
  int num_splits;    ///< 1: a work tile belongs to the block in whose work range it begins
  int plain_length;  ///< length of a work tile, if all are equal and cut equally; else 0
  /// Length that such a work tile occupies in the tile space: whole work ranges, or one split.
  int cut_length;
  /// Whether work tiles are scheduled whole: work tile i belongs to block i modulo the number of blocks.
  bool is_scheduled;
  int strands = 1;  ///< of the tile space: tile of rows r of a head is on strand r modulo their number
  int strand_blocks =
      0;  ///< blocks of a strand that have work; no others, so that the tile space fits 32 bits

  /// The position of TileSpaceBlock's block `block`. Adjacent blocks are on different strands, and those of a strand
  /// keep their order. Surplus blocks have a column after all others.
  JIT_HOST_DEVICE constexpr StrandPlace place(int block) const {
    if (strands == 1) return {0, block};
    const int column = small_quotient(block, strands);
    return {block - column * strands, column};
  }
  /// The block, counted in the order of the tile space.
  JIT_HOST_DEVICE constexpr int block_at(const StrandPlace& place) const {
    return place.strand * strand_blocks + place.column;  // mutate: AllInTheSamePlaces
  }
  /// Whether a block has a work range in which there is work.
  JIT_HOST_DEVICE constexpr bool has_work(const StrandPlace& place) const {
    return place.column < strand_blocks;
  }
  /// The start of a strand in the tile space.
  JIT_HOST_DEVICE constexpr int strand_begin(int strand) const { return strand * strand_blocks * length; }
  /// Restricts the shares to one strand.
  JIT_HOST_DEVICE constexpr void enter_strand(int strand) { total += strand_begin(strand); }

  JIT_HOST_DEVICE constexpr int begin(int block) const { return block * length; }
  JIT_HOST_DEVICE constexpr int end(int block) const { return begin(block) + length; }

  /// The length of a work tile in the tile space.
  JIT_HOST_DEVICE constexpr int in_tile_space(int tiles) const {
    return plain_length != 0 ? cut_length : work_tile_length(tiles);
  }
  /// The length in the tile space of work tiles whose lengths add up to `sum`.
  JIT_HOST_DEVICE constexpr int all_in_tile_space(int sum) const {
    return cut_length == plain_length ? sum : small_quotient(sum, plain_length) * cut_length;
  }

  /// Whether blocks may share work tiles.
  JIT_HOST_DEVICE constexpr bool cuts_work_tiles() const {
    return !is_scheduled && num_splits != 1 && (plain_length == 0 || length < cut_length);
  }

  JIT_HOST_DEVICE constexpr WorkTileSplit split(int block, int work_tile_begin, int tiles) const {
    if (is_scheduled) return {0, tiles, 1, block, true};
    const int first_block = small_quotient(work_tile_begin, length);
    if (num_splits == 1) return {0, tiles, 1, first_block, first_block == block};
    const int last_tile = tiles > 0 ? tiles - 1 : 0;
    const int last_block = small_quotient(work_tile_begin + tile_cost * last_tile, length);
    return {.tile_begin = tiles_before(begin(block) - work_tile_begin, tiles),
            .tile_end = tiles_before(end(block) - work_tile_begin, tiles),
            .splits = last_block - first_block + 1,
            .first_block = first_block,
            .is_mine = block >= first_block && block <= last_block};
  }

  /// Whether the last block of a work tile that ends at `work_tile_end` also has a split of the next one.
  JIT_HOST_DEVICE constexpr bool goes_on(const WorkTileSplit& split, int work_tile_end) const {
    return work_tile_end < total && work_tile_end < end(split.first_block + split.splits - 1);
  }

 private:
  // Tiles of a work tile that begin before `place`, which counts from the start of the work tile.
  static JIT_HOST_DEVICE constexpr int tiles_before(int place, int tiles) {
    if (place <= 0) return 0;
    const int before = (place + tile_cost - 1) / tile_cost;  // mutate: OneTileOfKeysTwice
    return before < tiles ? before : tiles;
  }
};

/// Work tiles are scheduled whole if the longest one is at most 1 / scheduled_work_tiles of a block's share.
inline constexpr int scheduled_work_tiles = 6;

/// A little more than x / y: work ranges must be equal and cover the tile space, but not be minimal.
JIT_HOST_DEVICE constexpr int more_than_quotient(int x, int y) {
  return static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)) * 1.000001f) + 1;
}

/// The most strands of a tile space. With this many, a key is read from memory so rarely that more would change little.
inline constexpr int most_strands = 8;

/// Strands are not worth leaving more than 1 / spared_for_strands of the blocks idle.
inline constexpr int spared_for_strands = 16;

/// A set of strand counts: bit i stands for i strands.
using StrandNumbers = unsigned;

/// The strand counts that divide `row_tiles` tiles of rows evenly.
JIT_HOST_DEVICE constexpr StrandNumbers strands_of_rows(int row_tiles) {
  StrandNumbers numbers = 0;
#ifdef __CUDA_ARCH__
#  pragma unroll
#endif
  for (int strands = 1; strands <= most_strands; ++strands)
    numbers |= row_tiles % strands == 0 ? 1u << strands : 0;
  return numbers;
}

/// The score of a strand count: the best one leaves the fewest blocks idle, and among equals is the highest. Any is
/// better than one strand if it leaves few blocks idle. `numbers`: counts that all heads allow. All strands have the
/// same number of blocks.
JIT_HOST_DEVICE constexpr int strands_score(int strands, StrandNumbers numbers, int blocks) {
  if (strands > most_strands || (numbers >> strands & 1) == 0 || strands > blocks) return 0;
  const int left_over =
      strands == 1 ? blocks / spared_for_strands : blocks - small_quotient(blocks, strands) * strands;
  return (blocks - left_over) * (2 * most_strands) + strands;
}
/// The strand count with this score.
JIT_HOST_DEVICE constexpr int strands_of_score(int score) { return score % (2 * most_strands); }

/// Whether the tile space may be split into strands: counting all work tiles of a head as its longest one must lose
/// little. `even` is the length of all work tiles counted so.
JIT_HOST_DEVICE constexpr bool may_have_strands(int total, int even) {
  constexpr int spared = 64;
  return even - total <= total / spared;
}

/// Whether work tiles are scheduled whole.
JIT_HOST_DEVICE constexpr bool schedules_work_tiles(const TileSpace& tile_space, int blocks) {
  return tile_space.shares_keys && more_than_quotient(tile_space.total, blocks) / scheduled_work_tiles >=
                                       work_tile_length(tile_space.most_tiles);
}

/// Shares of a tile space: work tiles are scheduled whole, or cut(strand, blocks) cuts each strand.
template <class Cut>
JIT_HOST_DEVICE constexpr KeyShares shares_of(const TileSpace& tile_space, int blocks, int num_splits,
                                              Cut cut) {
  if (schedules_work_tiles(tile_space, blocks))
    return {tile_space.total, more_than_quotient(tile_space.total, blocks), num_splits, 0, 0, true};
  TileSpace strand = tile_space;
  int strand_blocks = blocks;
  if (tile_space.strands > 1) {
    strand.total = tile_space.total / tile_space.strands;
    strand_blocks = small_quotient(blocks, tile_space.strands);
  }
  KeyShares shares = cut(strand, strand_blocks);
  shares.strands = tile_space.strands;
  // If `num_splits` makes work ranges long, some blocks have no work.
  const int with_work = small_quotient(shares.total - 1, shares.length) + 1;
  shares.strand_blocks = with_work < strand_blocks ? with_work : strand_blocks;
  return shares;
}

/// Shares of a strand whose work tiles may be cut between any tiles of keys.
JIT_HOST_DEVICE constexpr KeyShares cut_shares(const TileSpace& tile_space, int blocks, int num_splits) {
  int length = more_than_quotient(tile_space.total, blocks);
  const int work_tile = work_tile_length(tile_space.most_tiles);
  const bool is_countable = tile_space.total > 0 && tile_space.total >> 20 < work_tile;  // by small_quotient
  if (tile_space.least_tiles == tile_space.most_tiles && is_countable) {
    const int work_tiles = small_quotient(tile_space.total, work_tile);
    if (work_tiles >= blocks) {  // whole work tiles, as many for each block
      const int range = work_tile * (small_quotient(work_tiles - 1, blocks) + 1);
      if (range - length <= spare_for_alike)
        return {tile_space.total, range, num_splits, work_tile, work_tile, false};
    } else {  // each of them cut into as many splits as there are blocks for it
      int splits = small_quotient(blocks, work_tiles);
      if (num_splits > 0 && splits > num_splits) splits = num_splits;
      const int range = tile_cost * (small_quotient(tile_space.most_tiles + splits - 1, splits) +
                                     (tile_space.most_tiles == 0));
      if (range - length <= spare_for_alike || splits == num_splits)
        return {work_tiles * splits * range, range, num_splits, work_tile, splits * range, false};
    }
  }
  if (length < tile_cost) length = tile_cost;
  if (num_splits > 1) {
    const int least = more_than_quotient(tile_space.most_tiles * tile_cost, num_splits - 1);
    if (length < least) length = least;
  }
  return {tile_space.total, length, num_splits, 0, 0, false};
}

/// Shares of a tile space for `blocks` blocks. At most `num_splits` blocks share a work tile; 0: any number.
JIT_HOST_DEVICE constexpr KeyShares key_shares(const TileSpace& tile_space, int blocks, int num_splits) {
  return shares_of(tile_space, blocks, num_splits, [&](const TileSpace& strand, int of_strand) {
    return cut_shares(strand, of_strand, num_splits);
  });
}

}  // namespace jit
