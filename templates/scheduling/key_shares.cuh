// How the keys of all queries are shared out among blocks. Compiled by the host and by NVRTC.
//
// Work comes in units: a tile of rows with the tiles of keys that it sees. Laid end to end in a fixed order, the units
// are one line, which is cut into pieces ("Stream-K", Osama et al.; "Lean Attention", Sanovar et al.). Each block begins
// with a piece of its own, all of one length. What is left of a long line, its tail, is cut into short pieces, which
// blocks take when they are done: multiprocessors that memory serves faster take more of them. A unit is cut where
// pieces begin, whoever computes them.
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

/// A tail is worth its pieces where a block's share of the line is at least so long.
inline constexpr int least_share_with_tail = 12 * tile_cost;
/// Of the line. An H200 serves a fifth of its multiprocessors faster by a quarter than the others.
inline constexpr float tail_share = 0.125f;
/// Pieces of the tail for each block: about so many, and at most.
inline constexpr float tail_pieces_per_block = 2.5f;
inline constexpr int most_tail_pieces_per_block = 3;

/// All pieces that there can be for so many blocks.
JIT_HOST_DEVICE constexpr int most_pieces(int blocks) { return (1 + most_tail_pieces_per_block) * blocks; }

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

/// The part of a unit that lies in one piece.
struct UnitPart {
  int tile_begin;   ///< of the unit's tiles of keys
  int tile_end;     ///< equal to tile_begin for a unit without any
  int parts;        ///< that the unit has
  int first_piece;  ///< where the first part lies; the others lie in the pieces behind it
  bool exists;      ///< else the piece has no part
};

struct KeyShares {
  int total;        ///< length of the line
  int blocks;       ///< pieces with which blocks begin
  int length;       ///< of each of these
  int tail_length;  ///< of each of the others
  int num_splits;   ///< 1: a unit is all in the piece in which it begins

  JIT_HOST_DEVICE constexpr int tail_begin() const { return blocks * length; }
  JIT_HOST_DEVICE constexpr bool has_tail() const { return tail_begin() < total; }
  /// Pieces of the tail.
  JIT_HOST_DEVICE constexpr int tail_pieces() const {
    return has_tail() ? small_quotient(total - tail_begin() - 1, tail_length) + 1 : 0;
  }

  JIT_HOST_DEVICE constexpr int begin(int piece) const {
    return piece <= blocks ? piece * length : tail_begin() + (piece - blocks) * tail_length;
  }
  JIT_HOST_DEVICE constexpr int end(int piece) const { return begin(piece + 1); }
  /// The piece of a place on the line.
  JIT_HOST_DEVICE constexpr int piece_at(int place) const {
    const bool in_tail = place >= tail_begin();
    return (in_tail ? blocks : 0) +
           small_quotient(place - (in_tail ? tail_begin() : 0), in_tail ? tail_length : length);
  }

  JIT_HOST_DEVICE constexpr UnitPart part(int piece, int unit_begin, int tiles) const {
    const int first_piece = piece_at(unit_begin);
    if (num_splits == 1) return {0, tiles, 1, first_piece, first_piece == piece};
    const int last_tile = tiles > 0 ? tiles - 1 : 0;
    const int last_piece = piece_at(unit_begin + tile_cost * last_tile);
    return {.tile_begin = tiles_before(begin(piece) - unit_begin, tiles),
            .tile_end = tiles_before(end(piece) - unit_begin, tiles),
            .parts = last_piece - first_piece + 1,
            .first_piece = first_piece,
            .exists = piece >= first_piece && piece <= last_piece};
  }

 private:
  // Tiles of a unit that begin before a place on the line, counted from the unit's own beginning.
  static JIT_HOST_DEVICE constexpr int tiles_before(int place, int tiles) {
    if (place <= 0) return 0;
    const int before = (place + tile_cost - 1) / tile_cost;
    return before < tiles ? before : tiles;
  }
};

/// Shares of a line of this length. A unit has at most `most_tiles` tiles, and lies in at most `num_splits` pieces; 0: in
/// any number.
JIT_HOST_DEVICE constexpr KeyShares key_shares(int total, int blocks, int most_tiles, int num_splits) {
  // A little more than each quotient: pieces need not be as short as can be, but enough.
  constexpr float more = 1.000001f;
  const float share = rough_quotient(static_cast<float>(total), static_cast<float>(blocks));
  int least = tile_cost;
  if (num_splits > 1) {
    const float splits = static_cast<float>(num_splits - 1);
    least = static_cast<int>(rough_quotient(static_cast<float>(most_tiles) * tile_cost, splits) * more) + 1;
  }
  int length = static_cast<int>(share * (1 - tail_share));
  const int rest = total - blocks * length;
  int tail_length = static_cast<int>(share * (tail_share / tail_pieces_per_block)) + 1;
  const int shortest =
      static_cast<int>(
          rough_quotient(static_cast<float>(rest), static_cast<float>(most_tail_pieces_per_block * blocks)) *
          more) +
      1;
  if (tail_length < shortest) tail_length = shortest;
  if (share < least_share_with_tail || tail_length < least) {  // one piece for each block
    length = static_cast<int>(share * more) + 1;
    if (length < least) length = least;
    tail_length = length;
  }
  return {total, blocks, length, tail_length, num_splits};
}

}  // namespace jit
