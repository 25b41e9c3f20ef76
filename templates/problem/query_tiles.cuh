// The tiles of queries that a tile of keys visits: of all query heads that share the keys, head after head, in
// ascending or another order, without those that the mask drops, and with a look-ahead for loads.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/key_memory.cuh"
#include "problem/masks.cuh"
#include "problem/spread_words.cuh"

namespace jit {

struct AscendingTiles {
  JIT_DEVICE int query_tile(int place) const { return place; }
};

/// Windows of 32 tiles of queries that a producer looks up in a block table at once, so that it does not wait for
/// memory in each tile. 0: it lacks the registers.
template <class Config>
inline constexpr int looks_at_once = [] {
  if constexpr (requires { Config::looks_at_once; }) {
    return Config::looks_at_once;
  } else {
    return 0;
  }
}();
template <class Config>
inline constexpr bool looks_ahead = [] {
  if constexpr (requires { typename Config::Mask::Look; }) {
    return looks_at_once<Config> > 0 &&
           Config::Mask::template needs_one_look<Config::tile_q, Config::tile_kv>;
  } else {
    return false;
  }
}();

/// Iterates over these tiles, with loads `depth` tiles ahead of products. `Order` maps places to tiles of a head,
/// `Ranges` has the word ranges of queries. By whole warps.
template <class Config, int depth, class Order = AscendingTiles, class Ranges = NoQueryRanges>
class QueryTiles {
  using Mask = AskedMaskOf<Config>;
  using Memory = typename ChosenType<Ranges::are_known, TableMemory<Mask>, KeyMemory<Mask>>::type;
  static constexpr int tile_q = Config::tile_q;
  static constexpr bool goes_from_tile_to_tile =
      has_next<Mask> && is_same<Order, AscendingTiles> && !looks_ahead<Config>;
  static constexpr bool asks_by_lanes = !has_one_class<Mask> && !goes_from_tile_to_tile &&
                                        !Memory::needs_warp && Memory::ranges <= (Ranges::are_known ? 1 : 0);

  static constexpr bool has_wide_records = !is_same<typename Ranges::Record, WordRange>;

 public:
  /// `keys` gives the keys of the block; its queries are ignored.
  JIT_DEVICE QueryTiles(const SequencesOf<Config>& sequences, int batch, int kv_head, const ScoreTile& keys,
                        const Order& order = {}, const Ranges& ranges = {})
      : sequences_(sequences),
        keys_(keys),
        order_(order),
        ranges_(ranges),
        batch_(batch),
        first_head_(kv_head * Config::gqa_ratio) {
    seqlen_q_ = sequences.q(batch).length;
    tiles_ = (seqlen_q_ + tile_q - 1) / tile_q;
    if constexpr (has_wide_records)
      known_.memory = SpreadWords<Memory>(Memory(Mask(sequences_.context(batch_, first_head_)), keys_));
    Place next{0, 0};
#pragma unroll
    for (int i = 0; i <= depth; ++i) {
      find(i, next);
      next = {places_[i].head, places_[i].place + 1};
    }
  }

  // mutate: OneHeadOfTheGroup
  JIT_DEVICE bool has(int ahead) const { return places_[ahead].head < Config::gqa_ratio; }
  /// Query head, and first query, of the tile `ahead` steps in front; meaningless unless `has(ahead)`.
  JIT_DEVICE int head(int ahead) const { return first_head_ + places_[ahead].head; }
  JIT_DEVICE int query(int ahead) const { return query_of(places_[ahead].place); }
  /// Whether some score of the tile must be dropped, by the mask or because the queries end.
  JIT_DEVICE bool is_partial() const { return places_[0].partial; }

  JIT_DEVICE void advance() {
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

  JIT_DEVICE int query_of(int place) const { return order_.query_tile(place) * tile_q; }

  JIT_DEVICE ScoreTile tile_at(int place) const {
    const int begin = query_of(place);
    return {begin, minimum(begin + tile_q, seqlen_q_), keys_.k_begin, keys_.k_end};
  }
  JIT_DEVICE bool is_partial(TileClass kind, const ScoreTile& tile) const {
    // mutate: PartialTilesOfQueriesTakenForFull
    return kind != TileClass::full || tile.q_begin + tile_q > seqlen_q_;
  }

  // Finds the first non-empty tile from `next` on, for look-ahead `ahead`.
  JIT_DEVICE void find(int ahead, Place next) {
    for (; next.head < Config::gqa_ratio; ++next.head, next.place = 0) {
      if constexpr (looks_ahead<Config>) {
        find_by_looks(next);
      } else if constexpr (asks_by_lanes) {
        find_by_lanes(next);
      } else {
        find_by_warp(next);
      }
      if (next.place < tiles_) break;
      known_.place = nowhere;
    }
    places_[ahead] = next;
  }

  JIT_DEVICE void find_by_warp(Place& next) const {
    const Mask mask(sequences_.context(batch_, first_head_ + next.head));
    for (; next.place < tiles_; ++next.place) {
      if constexpr (goes_from_tile_to_tile) {
        const int query = query_of(next.place);
        next.place +=
            minimum(next_query(mask, keys_.k_begin, keys_.k_end, query) / tile_q, tiles_) - query / tile_q;
        if (next.place >= tiles_) break;
      }
      const ScoreTile tile = tile_at(next.place);
      const TileClass kind = mask.classify(tile);
      if (kind == TileClass::empty) continue;
      next.partial = is_partial(kind, tile);
      break;
    }
  }

  // Classifies one tile per lane, 32 at once.
  JIT_DEVICE void find_by_lanes(Place& next) {
    while (next.place < tiles_) {
      if (next.place - known_.place >= warp_size) know(next);
      const unsigned seen = known_.seen & ~0u << maximum(next.place - known_.place, 0);
      if (seen != 0) {
        const int bit = __ffs(static_cast<int>(seen)) - 1;
        next.place = known_.place + bit;
        next.partial = (known_.partial >> bit & 1) != 0;
        return;
      }
      next.place = known_.place + warp_size;
    }
  }

  // Classifies so many tiles with one round trip to memory that most sequences need no other. A producer whose mask has
  // row ranges lacks the registers for more.
  JIT_DEVICE void know(const Place& first) {
    using Record = typename Ranges::Record;
    constexpr int windows = Ranges::are_known && !has_wide_records ? 3 : 1;
    const Mask mask(sequences_.context(batch_, first_head_ + first.head));
    const Memory memory = [&] {
      if constexpr (has_wide_records) {
        return known_.memory.gathered();
      } else {
        return Memory(mask, keys_);
      }
    }();
    Record queries[windows];
#pragma unroll
    for (int i = 0; i < windows; ++i)
      queries[i] =
          ranges_.of(tile_at(minimum(first.place + i * warp_size + lane_id(), tiles_ - 1)).q_begin / tile_q);
#pragma unroll
    for (int i = 0; i < windows; ++i) {
      const int place = first.place + i * warp_size + lane_id();
      const ScoreTile tile = tile_at(minimum(place, tiles_ - 1));
      const TileClass kind = place < tiles_ ? memory.classify(mask, tile, queries[i]) : TileClass::empty;
      static_cast<KnownTiles&>(known_) = {.place = first.place + i * warp_size,
                                          .seen = __ballot_sync(full_warp, kind != TileClass::empty),
                                          .partial = __ballot_sync(full_warp, is_partial(kind, tile))};
      if (known_.seen != 0) return;
    }
  }

  // Classifies several windows of tiles, and keeps their classes until all have been passed.
  JIT_DEVICE void find_by_looks(Place& next) requires looks_ahead<Config> {
    constexpr int windows = looks_at_once<Config>;
#pragma unroll 1
    while (next.place < tiles_) {
      if (next.place - known_.place >= windows * warp_size || known_.place == nowhere) look(next);
      int found = -1;
      bool is_partial = false;
#pragma unroll
      for (int i = windows - 1; i >= 0; --i) {
        const int from = next.place - known_.place - i * warp_size;
        const unsigned seen = from >= warp_size ? 0 : known_.seen_of[i] & ~0u << maximum(from, 0);
        if (seen == 0) continue;
        const int bit = __ffs(static_cast<int>(seen)) - 1;
        found = i * warp_size + bit;
        is_partial = (known_.partial_of[i] >> bit & 1) != 0;
      }
      if (found >= 0) {
        next.place = known_.place + found;
        next.partial = is_partial;
        return;
      }
      next.place = known_.place + windows * warp_size;
    }
  }
  JIT_DEVICE void look(const Place& first) requires looks_ahead<Config> {
    constexpr int windows = looks_at_once<Config>;
    if constexpr (requires { order_.look(); }) order_.look();
    const Mask mask(sequences_.context(batch_, first_head_ + first.head));
    typename Mask::Look looks[windows];
#pragma unroll
    for (int i = 0; i < windows; ++i)
      looks[i] = mask.look(tile_at(minimum(first.place + i * warp_size + lane_id(), tiles_ - 1)));
#pragma unroll
    for (int i = 0; i < windows; ++i) {
      const int place = first.place + i * warp_size + lane_id();  // mutate: TilesOfTheFirstLook
      const ScoreTile tile = tile_at(minimum(place, tiles_ - 1));
      const TileClass kind = place < tiles_ ? mask.classify(tile, looks[i]) : TileClass::empty;
      known_.seen_of[i] = __ballot_sync(full_warp, kind != TileClass::empty);
      known_.partial_of[i] = __ballot_sync(full_warp, is_partial(kind, tile));
    }
    known_.place = first.place;
  }

  // Classes of a head's tiles from `place` on, one bit each; `nowhere`: none are known.
  static constexpr int nowhere = -warp_size;
  struct KnownTiles {
    int place = nowhere;
    unsigned seen = 0;
    unsigned partial = 0;
  };

  // Classes of the tiles of all windows that have been looked at.
  struct KnownWindows : KnownTiles {
    unsigned seen_of[looks_at_once<Config> + 1];
    unsigned partial_of[looks_at_once<Config> + 1];
  };

  // The memory of the keys beside them, so that asking about tiles needs no look-up.
  struct KnownBesideMemory : KnownTiles {
    SpreadWords<Memory> memory;
  };

  const SequencesOf<Config>& sequences_;
  ScoreTile keys_;
  Order order_;
  Ranges ranges_;
  typename ChosenType<looks_ahead<Config>, KnownWindows,
                      typename ChosenType<has_wide_records, KnownBesideMemory, KnownTiles>::type>::type
      known_;
  int batch_;
  int first_head_;
  int seqlen_q_;
  int tiles_;
  Place places_[depth + 1];
};

}  // namespace jit
