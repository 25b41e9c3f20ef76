// How the keys of all queries are shared out among blocks. Compiled by the host and by NVRTC.
//
// Work comes in units: a tile of rows with the tiles of keys that it sees. Laid end to end in a fixed order, the units
// are one line, which is cut into pieces of equal length, a piece for each block ("Stream-K", Osama et al.; "Lean
// Attention", Sanovar et al.). So all blocks end at about the same time, whatever the lengths of sequences, and a
// block has at most two units that it shares with others: the first and the last.
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
  int quotient = static_cast<int>(rough_quotient(static_cast<float>(x), static_cast<float>(y)));
  if (quotient * y > x) --quotient;
  if ((quotient + 1) * y <= x) ++quotient;
  return quotient;
}

/// The part of a unit that is one block's.
struct UnitPart {
  int tile_begin;   ///< of the unit's tiles of keys
  int tile_end;     ///< equal to tile_begin for a unit without any
  int parts;        ///< that the unit has
  int first_block;  ///< whose the first part is; the others are those of the blocks behind it
  bool is_mine;     ///< else the block has no part
};

struct KeyShares {
  int length;      ///< of a block's piece of the line
  int total;       ///< of the line
  int num_splits;  ///< 1: a unit is all of the block's in whose piece it begins

  JIT_HOST_DEVICE constexpr int begin(int block) const { return block * length; }
  JIT_HOST_DEVICE constexpr int end(int block) const { return begin(block) + length; }

  JIT_HOST_DEVICE constexpr UnitPart part(int block, int unit_begin, int tiles) const {
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

 private:
  // Tiles of a unit that begin before a place on the line, counted from the unit's own beginning.
  static JIT_HOST_DEVICE constexpr int tiles_before(int place, int tiles) {
    if (place <= 0) return 0;
    const int before = (place + tile_cost - 1) / tile_cost;
    return before < tiles ? before : tiles;
  }
};

/// Shares of a line of this length. A unit has at most `most_tiles` tiles, and is shared by at most `num_splits`
/// blocks; 0: by any number.
JIT_HOST_DEVICE constexpr KeyShares key_shares(int total, int blocks, int most_tiles, int num_splits) {
  // A little more than the quotient: pieces need not be as short as can be, but equal, and enough.
  const float share = rough_quotient(static_cast<float>(total), static_cast<float>(blocks));
  int length = static_cast<int>(share * 1.000001f) + 1;
  if (length < tile_cost) length = tile_cost;
  if (num_splits > 1) {
    const float least =
        rough_quotient(static_cast<float>(most_tiles) * tile_cost, static_cast<float>(num_splits - 1));
    if (length < static_cast<int>(least * 1.000001f) + 1) length = static_cast<int>(least * 1.000001f) + 1;
  }
  return {length, total, num_splits};
}

}  // namespace jit
