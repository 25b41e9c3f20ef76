// The tiles of keys of a warp. The warps of a cluster take turns, so that they read next to each other, and that a warp
// knows its first tile before it knows the length. In pages a warp's tiles stand side by side.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit::forward_split_cluster {

/// The tiles of a warp: every `stride`-th one of [first, end).
struct StridedRange {
  int first;
  int end;
  int stride;
};

/// Iterates over those tiles of a warp that the mask does not drop.
template <class Config>
class StridedTiles {
  using Mask = WorkTileMask<Config>;

 public:
  JIT_DEVICE StridedTiles(const Mask& mask, const ScoreTile& queries, const StridedRange& tiles,
                          int seqlen_kv)
      : mask_(mask), queries_(queries), tiles_(tiles), seqlen_kv_(seqlen_kv) {
    find(0);
  }

  JIT_DEVICE bool has_tile() const { return tile_of(turn_) < tiles_.end; }
  /// First key of the tile.
  JIT_DEVICE int key() const { return key_of(turn_); }
  /// Whether some score of the tile must be dropped, by the mask or because the keys end.
  JIT_DEVICE bool is_partial() const { return is_partial_; }
  JIT_DEVICE void advance() { find(turn_ + 1); }

  /// The turn of the tile: the number of the warp's tiles before it, dropped ones included.
  JIT_DEVICE int turn() const { return turn_; }
  JIT_DEVICE int key_of(int turn) const { return tile_of(turn) * Config::tile_kv; }

 private:
  JIT_DEVICE int tile_of(int turn) const { return tiles_.first + turn * tiles_.stride; }

  // Finds the first turn from `turn` on whose tile is not empty.
  JIT_DEVICE void find(int turn) {
    TileClass kind = TileClass::empty;
    for (; tile_of(turn) < tiles_.end; ++turn) {
      ScoreTile tile = queries_;
      if constexpr (has_next<Mask>) {
        const int next = next_key(mask_, tile.q_begin, tile.q_end, key_of(turn)) / Config::tile_kv;
        turn += (next - tile_of(turn) + tiles_.stride - 1) / tiles_.stride;
        if (tile_of(turn) >= tiles_.end) break;
      }
      tile.k_begin = key_of(turn);
      tile.k_end = minimum(tile.k_begin + Config::tile_kv, seqlen_kv_);
      kind = mask_.classify(tile);
      if (kind != TileClass::empty) break;
    }
    turn_ = turn;
    is_partial_ = kind != TileClass::full || key() + Config::tile_kv > seqlen_kv_;
  }

  const Mask& mask_;
  ScoreTile queries_;
  StridedRange tiles_;
  int seqlen_kv_;
  int turn_;
  bool is_partial_;
};

}  // namespace jit::forward_split_cluster
