// The tiles of keys that a tile of queries visits: those that the mask does not drop, in ascending or descending order,
// with a look-ahead for loads.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// Iterates over these tiles; loads run `depth` tiles ahead of products.
template <class Mask, int tile_kv, int depth, bool descending = false>
class KvTiles {
  static_assert(!descending || !(finds_tiles<Mask> || has_next<Mask>), "such masks know the next keys alone");
  static constexpr int step = descending ? -1 : 1;

 public:
  /// `queries` gives the rows of the block; its keys are ignored. `share` is the block's share of the keys: the
  /// mask's key_range of these queries, outside of which they see none, or a part of it that begins and ends
  /// between two tiles.
  JIT_DEVICE KvTiles(const Mask& mask, const ScoreTile& queries, const KeyRange& share, int seqlen_kv)
      : mask_(mask), queries_(queries), share_(share), seqlen_kv_(seqlen_kv) {
    begin_ = share.begin / tile_kv;
    end_ = (share.end + tile_kv - 1) / tile_kv;
    int next = descending ? end_ - 1 : begin_;
    if constexpr (finds_tiles<Mask>) {  // long code, not worth several copies
      index_[depth] = next - 1;
#pragma unroll 1
      for (int i = 0; i <= depth; ++i) advance();
    } else {
#pragma unroll
      for (int i = 0; i <= depth; ++i) {
        next = find(i, next) + step;
      }
    }
  }

  /// First key of the tile `ahead` steps in front; meaningless unless `has(ahead)`.
  JIT_DEVICE int key(int ahead) const { return index_[ahead] * tile_kv; }
  JIT_DEVICE bool has(int ahead) const { return is_in_share(index_[ahead]); }
  /// Keys of the share from this tile on, some of which may be dropped.
  JIT_DEVICE int keys_left() const {
    return descending ? key(0) + tile_kv - share_.begin : share_.end - key(0);
  }
  /// Whether some score of the tile must be dropped, by the mask or because the keys end.
  JIT_DEVICE bool is_partial(int ahead = 0) const { return partial_[ahead]; }

  /// Goes on with another range of keys, replacing the share. Only with a look-ahead of 0.
  JIT_DEVICE void go_on_in(const KeyRange& share) requires(depth == 0 && !descending) {
    share_ = share;
    begin_ = share.begin / tile_kv;
    end_ = (share.end + tile_kv - 1) / tile_kv;
    index_[0] = begin_ - 1;
    advance();
  }

  JIT_DEVICE void advance() {
    const int next = index_[depth] + step;
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      index_[i] = index_[i + 1];
      partial_[i] = partial_[i + 1];
    }
    find(depth, next);
  }

 private:
  JIT_DEVICE bool is_in_share(int index) const { return descending ? index >= begin_ : index < end_; }

  // Puts the first tile from `index` on that is not empty at place `ahead` and returns its index.
  JIT_DEVICE int find(int ahead, int index) {
    TileClass kind = TileClass::empty;
    if constexpr (finds_tiles<Mask>) {
      const SeenTile seen =
          mask_.next_tile(queries_.q_begin, queries_.q_end, index * tile_kv, end_ * tile_kv, tile_kv);
      index = seen.k_begin / tile_kv;
      kind = seen.is_full ? TileClass::full : TileClass::partial;
    }
    for (; !finds_tiles<Mask> && is_in_share(index); index += step) {
      ScoreTile tile = queries_;
      if constexpr (has_next<Mask>) {
        index = next_key(mask_, tile.q_begin, tile.q_end, index * tile_kv) / tile_kv;
        if (index >= end_) break;
      }
      tile.k_begin = index * tile_kv;
      tile.k_end = minimum(tile.k_begin + tile_kv, seqlen_kv_);
      kind = mask_.classify(tile);
      if (kind != TileClass::empty) break;
    }
    index_[ahead] = index;
    partial_[ahead] = kind != TileClass::full || (index + 1) * tile_kv > seqlen_kv_;
    return index;
  }

  const Mask& mask_;
  ScoreTile queries_;
  KeyRange share_;
  int seqlen_kv_;
  int begin_;
  int end_;
  int index_[depth + 1];
  bool partial_[depth + 1];
};

}  // namespace jit
