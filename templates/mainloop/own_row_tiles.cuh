// The tiles of keys of a tile of queries whose consumers have a row of blocks each (problem/block_mask.cuh): a tile comes for
// those that see it, and the others pass it by.
//
// Consumers are served in turns, each with the next block of its row that has not come yet. So a consumer that has blocks
// left passes by as many tiles at most as there are other consumers, and those of one row do not wait behind another's. A
// block that several rows list comes once, for all of them.
#pragma once

#include "base/bit_words.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// As KvTiles with a look-ahead of 1. `rows` are at most as many as tile infos have flags for. By a whole warp, whose lanes have
/// 32 blocks of each row in registers: a look at memory for each tile would take longer than the tile.
template <class Mask, int tile_kv, int rows, int row_queries>
class OwnRowTiles {
  static constexpr int none = 0x7fffffff;

 public:
  /// `queries` gives the rows of the block; its keys are ignored.
  JIT_DEVICE OwnRowTiles(const Mask& mask, const ScoreTile& queries, int seqlen_kv)
      : mask_(mask), queries_(queries), seqlen_kv_(seqlen_kv) {
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      left_[row] = blocks_of(row);
      window_[row] = 0;
      read(row, 0);
      bits_[row] = seen_bits(row, lane_id());
    }
    advance();
  }

  JIT_DEVICE int key(int /*ahead*/) const { return block_ * tile_kv; }
  JIT_DEVICE bool has(int ahead) const { return ahead == 0 ? block_ != none : most_left() > 0; }
  JIT_DEVICE bool is_partial() const { return is_partial_; }
  /// No more than there are from this tile on.
  JIT_DEVICE int keys_left() const { return (most_left() + 1) * tile_kv; }
  /// Flags of the tile info of this tile.
  JIT_DEVICE int flags() const {
    constexpr unsigned all = (1u << rows) - 1;
    return static_cast<int>((seen_ ^ all) * key_info_unseen |
                            last_ * key_info_last) |  // mutate: TilesOfOtherRows
           (has(1) ? 0 : key_info_end) |
           (is_partial_ ? key_info_partial : 0);
  }

  JIT_DEVICE void advance() {
    if (most_left() == 0) {
      block_ = none;
      return;
    }
    int turn = turn_;
#pragma unroll
    for (int step = rows; step > 0; --step) {  // the row that is next in turn is found last
      const int row = turn_ + step < rows ? turn_ + step : turn_ + step - rows;
      if (of_row(left_, row) > 0) turn = row;
    }
    turn_ = turn;
    unsigned lanes = __ballot_sync(full_warp, of_row(bits_, turn_) != 0);
#pragma unroll 1
    while (lanes == 0) {
      go_on(turn_);
      lanes = __ballot_sync(full_warp, of_row(bits_, turn_) != 0);
    }
    const int lane = __ffs(static_cast<int>(lanes)) - 1, window = of_row(window_, turn_);
    const int bit = __ffs(static_cast<int>(__shfl_sync(full_warp, of_row(bits_, turn_), lane))) - 1;
    block_ = (window + lane) * bits_of_word + bit;
    unsigned full = 0;
    seen_ = last_ = 0;
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      unsigned seen = 0, all = 0;
      if (window_[row] == window) {
        seen = __shfl_sync(full_warp, bits_[row], lane);
        all = __shfl_sync(full_warp, full_[row], lane);
        if (lane_id() == lane) bits_[row] &= ~(1u << bit);  // mutate: BlocksComeTwice
      } else if (window_[row] < window) {                   // those behind it have none left of these
        seen = seen_bits(row, window + lane);
        all = full_bits(row, window + lane);
      }
      const unsigned sees = seen >> bit & 1;
      left_[row] -= static_cast<int>(sees);
      seen_ |= sees << row;
      full |= (sees & all >> bit) << row;
      if (sees != 0 && left_[row] == 0) last_ |= 1u << row;
    }
    is_partial_ = (block_ + 1) * tile_kv > seqlen_kv_ || drops_some(seen_ & ~full);
  }

 private:
  template <class T>
  static JIT_DEVICE T of_row(const T (&values)[rows], int row) {
    T value = values[0];
#pragma unroll
    for (int i = 1; i < rows; ++i) value = i == row ? values[i] : value;
    return value;
  }
  JIT_DEVICE int most_left() const {
    int most = left_[0];
#pragma unroll
    for (int row = 1; row < rows; ++row) most = maximum(most, left_[row]);
    return most;
  }

  JIT_DEVICE int row_of(int row) const { return queries_.q_begin / row_queries + row; }
  JIT_DEVICE bool has_word(int row, int word) const {
    return row_of(row) < mask_.block_rows && word * bits_of_word < mask_.key_blocks;
  }
  // The bits of 32 blocks of a row of the tile's, which may be none.
  JIT_DEVICE unsigned seen_bits(int row, int word) const {
    return has_word(row, word) ? mask_.seen(row_of(row), word) & bits_between(word, 0, mask_.key_blocks) : 0;
  }
  JIT_DEVICE unsigned full_bits(int row, int word) const {
    return has_word(row, word) ? mask_.full(row_of(row), word) : 0;
  }

  JIT_DEVICE int blocks_of(int row) const {
    int own = 0;
#pragma unroll 1
    for (int word = lane_id(); word * bits_of_word < mask_.key_blocks; word += warp_size)
      own += __popc(static_cast<int>(seen_bits(row, word)));
    return __reduce_add_sync(full_warp, own);
  }

  JIT_DEVICE void read(int row, int window) { full_[row] = full_bits(row, window + lane_id()); }

  // Goes to the next window of a row that has blocks left: those of it that have come for another row have come.
  JIT_DEVICE void go_on(int turn) {
    const int window = of_row(window_, turn) + warp_size, word = window + lane_id();
    unsigned bits = seen_bits(turn, word);
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      if (row == turn || window_[row] < window) continue;
      const unsigned listed = seen_bits(row, word);
      bits &= ~(window_[row] > window ? listed : listed & ~bits_[row]);
    }
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      if (row != turn) continue;
      window_[row] = window;
      bits_[row] = bits;
      read(row, window);
    }
  }

  // Whether the mask within drops scores of this tile of one of the rows.
  JIT_DEVICE bool drops_some(unsigned asked) const {
#pragma unroll 1
    for (; asked != 0; asked &= asked - 1) {
      const int begin = queries_.q_begin + (__ffs(static_cast<int>(asked)) - 1) * row_queries;
      const ScoreTile tile{begin, minimum(begin + row_queries, queries_.q_end), block_ * tile_kv,
                           minimum((block_ + 1) * tile_kv, seqlen_kv_)};
      if (mask_.within.classify(tile) != TileClass::full) return true;
    }
    return false;
  }

  const Mask& mask_;
  const ScoreTile queries_;
  const int seqlen_kv_;
  // Of each row:
  int left_[rows];       // blocks that have not come
  int window_[rows];     // the word of the first lane, in steps of 32
  unsigned bits_[rows];  // of the lane's blocks, those that have not come
  unsigned full_[rows];  // and those that are full
  int turn_ = rows - 1;
  int block_ = none;
  unsigned seen_ = 0, last_ = 0;  // rows that see it, and that it is the last one of
  bool is_partial_ = false;
};

}  // namespace jit
