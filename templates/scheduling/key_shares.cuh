// Distributes the keys of all queries over blocks. Host and NVRTC compile this file.
//
// A work tile is a tile of rows with the tiles of keys that it sees. Laid end to end in a fixed order, the work tiles form one
// tile space, which is cut into work ranges of equal length, one for each block ("Stream-K", Osama et al.; "Lean Attention",
// Sanovar et al.). So all blocks end at about the same time, whatever the lengths of sequences, and a block shares at most two
// work tiles with others: its first and its last. Where all work tiles have one length, work ranges are chosen so that each
// work tile is cut at the same places, or not at all if that leaves few blocks idle. Where there are many more work tiles than
// the longest one, and several see the same keys, work tiles are scheduled whole: blocks then read the same keys at about the
// same time, and find them in the L2 cache.
//
// Where there are fewer work tiles, and several see the same keys, the tile space is split into n parallel strands: strand i
// has every n-th tile of rows of all heads and every n-th block, beginning with the i-th, and all strands are cut at the same
// places. So neighboring blocks have the same keys of neighboring tiles of rows at the same time. On one tile space a block
// would compute these one after another, or distant blocks would, and each would read the keys from memory.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The longest tile space: places on it and a little behind it are 32-bit numbers.
inline constexpr int longest_tile_space = 0x7fffffff - 0x1000000;

/// The cost of a tile of keys, and that of a work tile beside its tiles.
inline constexpr int tile_cost = 2;
inline constexpr int work_tile_cost = 1;

/// The length of a work tile in the tile space.
JIT_HOST_DEVICE constexpr int work_tile_length(int tiles) { return tile_cost * tiles + work_tile_cost; }

/// Work tiles that are alike are cut alike where that makes the longest work range of a block no longer than this
/// beyond its share: about what another split costs.
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
  // A product beyond 32 bits leaves a correct x all the same.
  const int left =
      static_cast<int>(static_cast<unsigned>(x) - static_cast<unsigned>(quotient) * static_cast<unsigned>(y));
  return left < 0 ? quotient - 1 : left >= y ? quotient + 1 : quotient;
}

/// Facts about all work tiles together.
struct TileSpace {
  int total;         ///< sum of their lengths
  bool shares_keys;  ///< whether some work tiles see the same keys
  int least_tiles;   ///< that a work tile has
  int most_tiles;
  /// Strands of the tile space; if there are several, all work tiles of a head count as its longest one.
  int strands = 1;
};

/// The split of a work tile that is one block's.
struct WorkTileSplit {
  int tile_begin;   ///< of the work tile's tiles of keys
  int tile_end;     ///< equal to tile_begin for a work tile without any
  int splits;       ///< that the work tile has
  int first_block;  ///< whose the first split is; the others are those of the blocks behind it
  bool is_mine;     ///< else the block has no split
};

/// A block's place where the tile space is split into strands.
struct StrandPlace {
  int strand;
  int column;  ///< of the blocks with work ranges of the same keys, one on each strand
};

/// Laid end to end, strands are one tile space again, of as many whole work ranges each. Blocks are counted along it:
/// the block with work range i is block i. Where blocks that are counted as TileSpaceBlock does are in the tile
/// space, `place` says.
struct KeyShares {
  /// Length of a strand; behind enter_strand(): where the block's own one ends in the tile space.
  int total;
  int length;        ///< of a block's work range of it
  int num_splits;    ///< 1: a work tile is all of the block's in whose work range it begins
  int plain_length;  ///< of a work tile, where all are alike and cut alike; else 0
  /// Length that a work tile occupies in the tile space then: so many whole work ranges, or one split.
  int cut_length;
  /// Whether work tiles are scheduled whole, in turns: work tile i is that of block i modulo their number.
  bool is_scheduled;
  int strands = 1;  ///< of the tile space: tile of rows r of a head is on strand r modulo their number
  int strand_blocks =
      0;  ///< of each strand; no more than have work, so that places in the tile space are 32-bit numbers

  /// The place of a block as TileSpaceBlock counts them. Those side by side are on different strands, and
  /// those of a strand keep their order. Blocks that are left over have a column behind all others.
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
  /// Where a strand begins in the tile space.
  JIT_HOST_DEVICE constexpr int strand_begin(int strand) const { return strand * strand_blocks * length; }
  /// Makes these the shares as blocks of one strand see them.
  JIT_HOST_DEVICE constexpr void enter_strand(int strand) { total += strand_begin(strand); }

  JIT_HOST_DEVICE constexpr int begin(int block) const { return block * length; }
  JIT_HOST_DEVICE constexpr int end(int block) const { return begin(block) + length; }

  /// The length of a work tile in the tile space.
  JIT_HOST_DEVICE constexpr int in_tile_space(int tiles) const {
    return plain_length != 0 ? cut_length : work_tile_length(tiles);
  }
  /// The length in the tile space of work tiles with `sum` tiles of keys in all.
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

  /// Whether the last block of a work tile that ends at `work_tile_end` has a split of the next one, too.
  JIT_HOST_DEVICE constexpr bool goes_on(const WorkTileSplit& split, int work_tile_end) const {
    return work_tile_end < total && work_tile_end < end(split.first_block + split.splits - 1);
  }

 private:
  // Tiles of a work tile that begin before a place in the tile space, counted from the work tile's own beginning.
  static JIT_HOST_DEVICE constexpr int tiles_before(int place, int tiles) {
    if (place <= 0) return 0;
    const int before = (place + tile_cost - 1) / tile_cost;  // mutate: OneTileOfKeysTwice
    return before < tiles ? before : tiles;
  }
};

/// Work tiles are scheduled where the longest one is at most this fraction of a block's share.
inline constexpr int scheduled_work_tiles = 6;

/// A little more than x / y: work ranges need not be as short as can be, but equal, and enough.
JIT_HOST_DEVICE constexpr int more_than_quotient(int x, int y) {
  return static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)) * 1.000001f) + 1;
}

/// Most strands of a tile space: with so many a key is read from memory so rarely that more would change little.
inline constexpr int most_strands = 8;

/// Strands are not worth more than this fraction of the blocks, which would be left over.
inline constexpr int spared_for_strands = 16;

/// A set of numbers of strands: bit i is that of i.
using StrandNumbers = unsigned;

/// The numbers of strands into which so many tiles of rows can be scheduled, as many for each strand.
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

/// Whether so little is lost when all work tiles of a head count as its longest one that the tile space may be split
/// into strands. `even` is the length of all work tiles then.
JIT_HOST_DEVICE constexpr bool may_have_strands(int total, int even) {
  constexpr int spared = 64;
  return even - total <= total / spared;
}

/// Whether work tiles of the tile space are scheduled.
JIT_HOST_DEVICE constexpr bool schedules_work_tiles(const TileSpace& tile_space, int blocks) {
  return tile_space.shares_keys && more_than_quotient(tile_space.total, blocks) / scheduled_work_tiles >=
                                       work_tile_length(tile_space.most_tiles);
}

/// Shares of a tile space whose work tiles are scheduled, or which is cut as cut(strand, blocks) says for each of its
/// strands.
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
  // Where `num_splits` makes work ranges long, all blocks together would exceed the tile space.
  const int with_work = small_quotient(shares.total - 1, shares.length) + 1;
  shares.strand_blocks = with_work < strand_blocks ? with_work : strand_blocks;
  return shares;
}

/// The shares of a strand whose work tiles are cut between any tiles.
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

/// Shares of a tile space for so many blocks. A work tile is shared by at most `num_splits` of them; 0: by any number.
JIT_HOST_DEVICE constexpr KeyShares key_shares(const TileSpace& tile_space, int blocks, int num_splits) {
  return shares_of(tile_space, blocks, num_splits, [&](const TileSpace& strand, int of_strand) {
    return cut_shares(strand, of_strand, num_splits);
  });
}

}  // namespace jit
