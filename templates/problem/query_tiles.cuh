// The query tiles that one block of keys visits: those of all query heads that share the keys, head after head and in
// ascending or another order, but none that the mask drops, with a look-ahead for the loads.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

struct AscendingTiles {
  __device__ __forceinline__ int query_tile(int place) const { return place; }
};

/// `depth` is how many tiles the loads run ahead of the multiplications. Tile i of the look-ahead is i steps in front.
/// `Order` tells which tile of a head has which place.
template <class Config, int depth, class Order = AscendingTiles>
class QueryTiles {
  static constexpr int tile_q = Config::tile_q;

 public:
  /// `keys` gives the keys of the block; its queries are ignored.
  __device__ __forceinline__ QueryTiles(const SequencesOf<Config>& sequences, int batch, int kv_head,
                                        const ScoreTile& keys, const Order& order = {})
      : sequences_(sequences),
        keys_(keys),
        order_(order),
        batch_(batch),
        first_head_(kv_head * Config::gqa_ratio) {
    seqlen_q_ = sequences.q(batch).length;
    tiles_ = (seqlen_q_ + tile_q - 1) / tile_q;
    Place next{0, 0};
#pragma unroll
    for (int i = 0; i <= depth; ++i) {
      find(i, next);
      next = {places_[i].head, places_[i].place + 1};
    }
  }

  __device__ __forceinline__ bool has(int ahead) const { return places_[ahead].head < Config::gqa_ratio; }
  /// Query head, and first query, of the tile `ahead` steps in front; meaningless unless `has(ahead)`.
  __device__ __forceinline__ int head(int ahead) const { return first_head_ + places_[ahead].head; }
  __device__ __forceinline__ int query(int ahead) const { return query_of(places_[ahead].place); }
  /// Whether some score of the tile must be dropped, by the mask or because the queries end.
  __device__ __forceinline__ bool is_partial() const { return places_[0].partial; }

  __device__ __forceinline__ void advance() {
    const Place next{places_[depth].head, places_[depth].place + 1};
#pragma unroll
    for (int i = 0; i < depth; ++i) places_[i] = places_[i + 1];
    find(depth, next);
  }

 private:
  struct Place {
    int head;   ///< of those that share the keys
    int place;  ///< in the order
    bool partial = false;
  };

  __device__ __forceinline__ int query_of(int place) const { return order_.query_tile(place) * tile_q; }

  // Puts the first tile from `next` on that is not empty at place `ahead`.
  __device__ __forceinline__ void find(int ahead, Place next) {
    for (; next.head < Config::gqa_ratio; ++next.head, next.place = 0) {
      const typename Config::Mask mask(sequences_.context(batch_, first_head_ + next.head));
      for (; next.place < tiles_; ++next.place) {
        ScoreTile tile = keys_;
        if constexpr (has_next<typename Config::Mask> && is_same<Order, AscendingTiles>) {
          const int query = query_of(next.place);
          next.place +=
              minimum(next_query(mask, keys_.k_begin, keys_.k_end, query) / tile_q, tiles_) - query / tile_q;
          if (next.place >= tiles_) break;
        }
        tile.q_begin = query_of(next.place);
        tile.q_end = minimum(tile.q_begin + tile_q, seqlen_q_);
        const TileClass kind = mask.classify(tile);
        if (kind == TileClass::empty) continue;
        next.partial = kind != TileClass::full || tile.q_begin + tile_q > seqlen_q_;
        places_[ahead] = next;
        return;
      }
    }
    places_[ahead] = next;
  }

  const SequencesOf<Config>& sequences_;
  ScoreTile keys_;
  Order order_;
  int batch_;
  int first_head_;
  int seqlen_q_;
  int tiles_;
  Place places_[depth + 1];
};

}  // namespace jit
