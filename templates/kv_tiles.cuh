// The key tiles that one block of queries visits: those that the mask does not drop, in ascending order, with
// a look-ahead for the loads.
#pragma once

#include "functor.cuh"
#include "prelude.cuh"

namespace jit {

/// `depth` is how many tiles the loads run ahead of the multiplications. Tile i of the look-ahead is i steps
/// in front.
template <class Mask, int tile_kv, int depth>
class KvTiles {
 public:
  /// `queries` gives the rows of the block; its keys are ignored: outside of `range` they see none.
  __device__ __forceinline__ KvTiles(const Mask& mask, const ScoreTile& queries, const KeyRange& range,
                                     int seqlen_kv)
      : mask_(mask), queries_(queries), seqlen_kv_(seqlen_kv) {
    end_ = (range.end + tile_kv - 1) / tile_kv;
    index_[depth] = range.begin / tile_kv - 1;
#pragma unroll 1
    for (int i = 0; i <= depth; ++i) advance();
  }

  /// First key of the tile `ahead` steps in front; meaningless unless `has(ahead)`.
  __device__ __forceinline__ int key(int ahead) const { return index_[ahead] * tile_kv; }
  __device__ __forceinline__ bool has(int ahead) const { return index_[ahead] < end_; }
  /// Whether some score of the tile must be dropped, by the mask or because the keys end.
  __device__ __forceinline__ bool is_partial(int ahead = 0) const { return partial_[ahead]; }

  __device__ __forceinline__ void advance() {
    const int next = index_[depth] + 1;
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      index_[i] = index_[i + 1];
      partial_[i] = partial_[i + 1];
    }
    find(next);
  }

 private:
  // Puts the first tile from `index` on that is not empty at the farthest place.
  __device__ __forceinline__ void find(int index) {
    TileClass kind = TileClass::empty;
    for (; index < end_; ++index) {
      ScoreTile tile = queries_;
      tile.k_begin = index * tile_kv;
      tile.k_end = minimum(tile.k_begin + tile_kv, seqlen_kv_);
      kind = mask_.classify(tile);
      if (kind != TileClass::empty) break;
    }
    index_[depth] = index;
    partial_[depth] = kind != TileClass::full || (index + 1) * tile_kv > seqlen_kv_;
  }

  const Mask& mask_;
  ScoreTile queries_;
  int seqlen_kv_;
  int end_;
  int index_[depth + 1] = {};
  bool partial_[depth + 1] = {};
};

}  // namespace jit
