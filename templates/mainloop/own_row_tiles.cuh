// The tiles of keys of a tile of queries whose consumers have a row of blocks each (problem/block_mask.cuh): a tile comes for
// those that see it, and the others pass it by.
//
// Consumers are served in turns, each with the next block of its row that has not come yet. So a consumer that has blocks
// left passes by as many tiles at most as there are other consumers, and those of one row do not wait behind another's. A
// block that several rows list comes once, for all of them: what has come is told by places alone. A row has had what it
// lists in front of its next block, and so has every other that lists the same.
#pragma once

#include "base/bit_words.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// As KvTiles with a look-ahead of 1. `rows` are at most as many as tile infos have flags for. By a whole warp, of which
/// lane i knows row i.
template <class Mask, int tile_kv, int rows, int row_queries>
class OwnRowTiles {
  static constexpr int none = 0x7fffffff;

 public:
  /// `queries` gives the rows of the block; its keys are ignored.
  JIT_DEVICE OwnRowTiles(const Mask& mask, const ScoreTile& queries, int seqlen_kv)
      : mask_(mask), queries_(queries), seqlen_kv_(seqlen_kv) {
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      const int count = blocks_of(row);
      if (lane_id() == row) left_ = count;
    }
#pragma unroll 1
    for (int row = 0; row < rows; ++row) move(row, 0);
    advance();
  }

  JIT_DEVICE int key(int /*ahead*/) const { return block_ * tile_kv; }
  JIT_DEVICE bool has(int ahead) const { return ahead == 0 ? block_ != none : rows_left() != 0; }
  JIT_DEVICE bool is_partial() const { return is_partial_; }
  /// No more than there are from this tile on.
  JIT_DEVICE int keys_left() const { return (__reduce_max_sync(full_warp, left_) + 1) * tile_kv; }
  /// Flags of the tile info of this tile.
  JIT_DEVICE int flags() const {
    constexpr unsigned all = (1u << rows) - 1;
    return static_cast<int>((seen_ ^ all) * key_info_unseen | last_ * key_info_last) |  // mutate: TilesOfOtherRows
           (has(1) ? 0 : key_info_end) | (is_partial_ ? key_info_partial : 0);
  }

  JIT_DEVICE void advance() {
    const unsigned waiting = rows_left();
    if (waiting == 0) {
      block_ = none;
      return;
    }
    const unsigned behind = waiting & ~0u << turn_ << 1;  // mutate: OneRowAfterTheOther
    turn_ = __ffs(static_cast<int>(behind != 0 ? behind : waiting)) - 1;
    block_ = __shfl_sync(full_warp, next_, turn_);
    const unsigned bit = 1u << block_ % bits_of_word;
    const int word = block_ / bits_of_word;
    const bool sees = (seen_words(lane_id(), word) & bit) != 0;
    const bool is_full = sees && (mask_.full(first_row() + lane_id(), word) & bit) != 0;
    if (sees) --left_;
    seen_ = __ballot_sync(full_warp, sees);
    last_ = __ballot_sync(full_warp, sees && left_ == 0);
    is_partial_ = (block_ + 1) * tile_kv > seqlen_kv_ || drops_some(seen_ & ~__ballot_sync(full_warp, is_full));
    const int block = block_;
    if (sees && left_ == 0) next_ = none;
#pragma unroll 1
    for (unsigned moving = __ballot_sync(full_warp, next_ == block); moving != 0; moving &= moving - 1)
      move(__ffs(static_cast<int>(moving)) - 1, block + 1);
  }

 private:
  JIT_DEVICE int first_row() const { return queries_.q_begin / row_queries; }
  JIT_DEVICE unsigned rows_left() const { return __ballot_sync(full_warp, left_ > 0); }

  // The bits of 32 blocks of a row of the tile's, which may be none.
  JIT_DEVICE unsigned seen_words(int row, int word) const {
    if (row >= rows || first_row() + row >= mask_.block_rows || word * bits_of_word >= mask_.key_blocks) return 0;
    return mask_.seen(first_row() + row, word) & bits_between(word, 0, mask_.key_blocks);
  }

  JIT_DEVICE int blocks_of(int row) const {
    int own = 0;
#pragma unroll 1
    for (int word = lane_id(); word * bits_of_word < mask_.key_blocks; word += warp_size)
      own += __popc(static_cast<int>(seen_words(row, word)));
    return __reduce_add_sync(full_warp, own);
  }

  // Goes to the first block of a row from `from` on that has not come.
  JIT_DEVICE void move(int row, int from) {
    int found = none;
#pragma unroll 1
    for (int first = from / bits_of_word; found == none && first * bits_of_word < mask_.key_blocks;
         first += warp_size) {
      const int word = first + lane_id();
      unsigned left = seen_words(row, word) & bits_between(word, from, none);
#pragma unroll
      for (int other = 0; other < rows; ++other) {
        const int next = __shfl_sync(full_warp, next_, other);
        // mutate: BlocksComeTwice
        if (other != row) left &= ~(seen_words(other, word) & bits_between(word, 0, next));
      }
      const unsigned lanes = __ballot_sync(full_warp, left != 0);
      if (lanes == 0) continue;
      const int lane = __ffs(static_cast<int>(lanes)) - 1;
      const unsigned bits = __shfl_sync(full_warp, left, lane);
      found = (first + lane) * bits_of_word + __ffs(static_cast<int>(bits)) - 1;
    }
    if (lane_id() == row) next_ = found;
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
  int next_ = 0;  // block of the lane's row that has not come; none: all have
  int left_ = 0;  // of its row's blocks
  int turn_ = rows - 1;
  int block_ = none;
  unsigned seen_ = 0, last_ = 0;  // rows that see it, and that it is the last one of
  bool is_partial_ = false;
};

}  // namespace jit
