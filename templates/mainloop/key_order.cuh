// The order in which queries visit tiles of keys, and the waits of their loads. Keys are in memory and are visited in
// ascending or descending order, or they arrive from other devices while the kernel runs and are visited in the order
// of arrival.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/arrival_table.cuh"
#include "problem/functor.cuh"
#include "problem/kv_tiles.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// The tiles of keys of one block of queries, as KvTiles with a look-ahead of 1: piece by piece of the table of
/// `Arrivals`, ascending within a piece. A tile in several pieces is visited with the last one. By a whole warp.
template <class Mask, int tile_kv, class Arrivals>
class ArrivingKvTiles {
 public:
  JIT_DEVICE ArrivingKvTiles(const Arrivals& arrivals, const Mask& mask, const ScoreTile& queries,
                             const KeyRange& range, int seqlen_kv)
      : arrivals_(arrivals),
        range_(whole_tiles(range)),
        next_(mask, queries, {0, 0}, seqlen_kv),
        count_(arrivals.pieces()) {
    if (count_ == 0) {
      next_.go_on_in(range_);
    } else {
      following_ = piece_from(0, range_);
      find();
    }
    advance();
  }

  JIT_DEVICE int key(int ahead) const { return ahead == 0 ? key_ : next_.key(0); }
  JIT_DEVICE bool has(int ahead) const { return ahead == 0 ? has_ : next_.has(0); }
  JIT_DEVICE bool is_partial() const { return is_partial_; }
  /// Arrival words that must hold the epoch before the tile is loaded.
  JIT_DEVICE int words() const { return words_; }
  /// Keys from this tile on; a large number before the last piece.
  JIT_DEVICE int keys_left() const {
    return following_ < count_ ? 0x7fffffff : minimum(range_.end, piece_.end) - next_.key(0) + tile_kv;
  }

  JIT_DEVICE void advance() {
    key_ = next_.key(0);
    has_ = next_.has(0);
    is_partial_ = next_.is_partial();
    words_ = piece_.words;  // mutate: ArrivalOfTheTileBefore
    if (!has_) return;
    next_.advance();
    find();
  }

 private:
  static JIT_DEVICE KeyRange whole_tiles(const KeyRange& range) {
    if (range.begin >= range.end) return {0, 0};
    return {range.begin / tile_kv * tile_kv, (range.end + tile_kv - 1) / tile_kv * tile_kv};
  }

  // Advances next_ to the first tile whose last piece is the current one, through as many pieces as needed.
  JIT_DEVICE void find() {
    if (count_ == 0) return;
#pragma unroll 1
    while (true) {
      while (next_.has(0) && !is_last_piece()) next_.advance();
      if (next_.has(0) || following_ >= count_) return;
      index_ = following_;
      piece_ = arrivals_.piece(index_);
      following_ = piece_from(index_ + 1, range_);
      next_.go_on_in({maximum(piece_.begin, range_.begin), minimum(piece_.end, range_.end)});
    }
  }

  // Whether no later piece has keys of the tile of next_.
  JIT_DEVICE bool is_last_piece() const {
    const int begin = next_.key(0), end = begin + tile_kv;
    if (begin >= piece_.begin && end <= piece_.end) return true;
    return piece_from(index_ + 1, {begin, end}) == count_;  // mutate: TilesOfSeveralPieces
  }

  // The first piece from the i-th on that has keys of `range`; count_ if there is none.
  JIT_DEVICE int piece_from(int i, const KeyRange& range) const {
#pragma unroll 1
    for (; i < count_; i += warp_size) {
      const int own = i + lane_id();
      bool has_some = own < count_;
      if (has_some) {
        const ArrivalPiece piece = arrivals_.piece(own);
        has_some = maximum(piece.begin, range.begin) < minimum(piece.end, range.end);
      }
      const unsigned some = __ballot_sync(full_warp, has_some);
      if (some != 0) return i + __ffs(static_cast<int>(some)) - 1;
    }
    return count_;
  }

  const Arrivals& arrivals_;
  const KeyRange range_;
  KvTiles<Mask, tile_kv, 0> next_;
  const int count_;
  ArrivalPiece piece_{0, 0x7fffffff, 0, 0};  // of next_
  int index_ = 0;                            // index of piece_
  int following_ = 0;                        // index of the next piece with keys of the range
  int key_ = 0;
  int words_ = 0;
  bool has_ = false;
  bool is_partial_ = false;
};

/// The order of a producer's keys over all of its work tiles, if all keys are in memory.
template <class Config>
class KeyOrder {
 public:
  JIT_DEVICE explicit KeyOrder(const AttentionParams&) {}

  /// The tiles of keys of one block of queries.
  template <class Mask>
  struct Tiles : KvTiles<Mask, Config::tile_kv, 1, Config::descending> {
    JIT_DEVICE Tiles(const KeyOrder&, const Mask& mask, const ScoreTile& queries, const KeyRange& range,
                     int seqlen_kv)
        : KvTiles<Mask, Config::tile_kv, 1, Config::descending>(mask, queries, range, seqlen_kv) {}
  };
  /// Loads the current tile of keys of `tiles`; its values lie in the same `box`.
  template <class Tiles, class Producer, class Box, class Info, class Beside>
  JIT_DEVICE void load(const Tiles&, Producer& producer, const Box& box, const Info& info,
                       const Beside& beside) {
    producer.load_keys(box, info, beside);
  }
  /// Called after the last work tile.
  JIT_DEVICE void finish() {}
};

/// Empties a box, so that TMA loads zeros.
JIT_DEVICE void leave_out(RowPlace& box) { box.seq = no_row; }
JIT_DEVICE void leave_out(BoundedBox& box) { box = bounded_box(0, 0, 0, box.head, box.batch); }

/// The order of keys that arrive while the kernel runs. Results that need keys that do not arrive in time are NaN.
template <has_arrivals Config>
class KeyOrder<Config> {
  using Arrivals = typename Config::Arrivals;

 public:
  JIT_DEVICE explicit KeyOrder(const AttentionParams& params) : arrivals_(params) {}

  template <class Mask>
  struct Tiles : ArrivingKvTiles<Mask, Config::tile_kv, Arrivals> {
    JIT_DEVICE Tiles(const KeyOrder& order, const Mask& mask, const ScoreTile& queries, const KeyRange& range,
                     int seqlen_kv)
        : ArrivingKvTiles<Mask, Config::tile_kv, Arrivals>(order.arrivals_, mask, queries, range, seqlen_kv) {
    }
  };
  template <class Tiles, class Producer, class Box, class Info, class Beside>
  JIT_DEVICE void load(const Tiles& tiles, Producer& producer, Box& box, const Info& info,
                       const Beside& beside) {
    if (arrivals_.wait(tiles.words())) {  // mutate: KeysBeforeTheyArrive
      producer.load_keys(box, info, beside);
    } else {
      producer.poison_keys(info, beside);
      leave_out(box);  // its values, which may still be written
    }
  }
  JIT_DEVICE void finish() { arrivals_.finish(); }  // mutate: EndsBeforeAllHaveBegun

 private:
  Arrivals arrivals_;
};

}  // namespace jit
