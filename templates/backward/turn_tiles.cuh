// The tiles of queries that a tile of keys visits, each for all query heads that share the keys before the next one,
// with the interface of QueryTiles (problem/query_tiles.cuh). So blocks of one KV head advance through the queries at the
// same rate, however many tiles the mask keeps for each: they find queries of one another in the L2 cache. If blocks
// draw tiles of keys and take turns (turns.cuh), tiles of queries ascend where the last tile of keys adds first, and
// else descend.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/key_memory.cuh"
#include "problem/masks.cuh"

namespace jit {

/// The look-ahead is one tile. By whole warps.
template <class Config, class Ranges = NoQueryRanges>
class TurnTiles {
  using Mask = AskedMaskOf<Config>;
  using Memory = typename ChosenType<Ranges::are_known, TableMemory<Mask>, KeyMemory<Mask>>::type;
  static constexpr int tile_q = Config::tile_q, heads = Config::gqa_ratio;
  static constexpr bool asks_by_lanes =
      !has_one_class<Mask> && !Memory::needs_warp && Memory::ranges <= (Ranges::are_known ? 1 : 0);

 public:
  /// `keys` gives the keys of the block; its queries are ignored.
  JIT_DEVICE TurnTiles(const SequencesOf<Config>& sequences, int batch, int kv_head, const ScoreTile& keys,
                       bool ascends, const Ranges& ranges = {})
      : sequences_(sequences),
        keys_(keys),
        ranges_(ranges),
        batch_(batch),
        first_head_(kv_head * heads),
        ascends_(ascends) {
    seqlen_q_ = sequences.q(batch).length;
    tiles_ = (seqlen_q_ + tile_q - 1) / tile_q;
    end_ = tiles_ * heads;
    cut_end();
    next_ = -2;  // in front of the first place
#pragma unroll 1
    for (int i = 0; i < 2; ++i) advance();  // in one copy: producers have few registers
  }

  JIT_DEVICE bool has(int ahead) const { return place(ahead) < end_; }
  /// Query head, and first query, of the tile `ahead` steps in front; meaningless unless `has(ahead)`.
  JIT_DEVICE int head(int ahead) const { return head_at(place(ahead)); }
  JIT_DEVICE int query(int ahead) const { return query_at(place(ahead)); }
  /// Whether some score of the tile must be dropped, by the mask or because the queries end.
  JIT_DEVICE bool is_partial() const { return (own_ & 1) != 0; }

  JIT_DEVICE void advance() {
    own_ = next_;
    next_ = find(place(0) + 1);
  }

 private:
  struct Asked {
    bool seen;
    bool partial;
  };

  JIT_DEVICE int place(int ahead) const { return (ahead == 0 ? own_ : next_) >> 1; }
  JIT_DEVICE int head_at(int place) const { return first_head_ + place % heads; }
  JIT_DEVICE int query_at(int place) const {
    const int tile = place / heads;
    return (ascends_ ? tile : tiles_ - 1 - tile) * tile_q;  // mutate: TheFirstTileOfQueriesIsVisited
  }

  // Asks the mask about the tile at a place.
  template <class Classify>
  JIT_DEVICE Asked ask(int place, const Classify& classify) const {
    const Mask mask(sequences_.context(batch_, head_at(place)));
    const int begin = query_at(place);
    const ScoreTile tile{begin, minimum(begin + tile_q, seqlen_q_), keys_.k_begin, keys_.k_end};
    const TileClass kind = classify(mask, tile);
    return {kind != TileClass::empty, kind != TileClass::full || begin + tile_q > seqlen_q_};
  }
  JIT_DEVICE Asked ask(int place) const {
    return ask(place, [](const Mask& mask, const ScoreTile& tile) { return mask.classify(tile); });
  }

  // Lanes ask about a place each, from `first` on.
  struct Window {
    int first = -warp_size;
    unsigned seen = 0;
    unsigned partial = 0;
  };
  JIT_DEVICE Window window(int first) const {
    const Memory memory(Mask(sequences_.context(batch_, first_head_)), keys_);
    const int own = minimum(first + lane_id(), end_ - 1);
    const Asked asked = ask(own, [&](const Mask& mask, const ScoreTile& tile) {
      return memory.classify(mask, tile, ranges_.of(tile.q_begin / tile_q));
    });
    return {.first = first,
            .seen = __ballot_sync(full_warp, asked.seen && first + lane_id() < end_),
            .partial = __ballot_sync(full_warp, asked.partial)};
  }

  // Cuts off the places after the last visible one; overlaps with the previous tile of keys.
  JIT_DEVICE void cut_end() {
    if constexpr (asks_by_lanes) {
      while (end_ > 0) {
        const int first = (end_ - 1) / warp_size * warp_size;
        known_ = window(first);
        // mutate: TheLastPlaceThatIsSeenIsCutOff
        end_ = first + warp_size - __clz(static_cast<int>(known_.seen));
        if (known_.seen != 0) return;
        end_ = first;
      }
    } else if constexpr (!has_one_class<Mask>) {
      while (end_ > 0 && !ask(end_ - 1).seen) --end_;
    }
  }

  // The first visible place from `place` on, or the end, encoded as own_ and next_.
  JIT_DEVICE int find(int place) {
    if constexpr (asks_by_lanes) {
      while (place < end_) {
        if (place < known_.first || place - known_.first >= warp_size)
          known_ = window(place / warp_size * warp_size);
        const unsigned seen = known_.seen & ~0u << place - known_.first;
        if (seen != 0) {
          const int bit = __ffs(static_cast<int>(seen)) - 1;
          return (known_.first + bit) * 2 + static_cast<int>(known_.partial >> bit & 1);
        }
        place = known_.first + warp_size;
      }
    } else {
      for (; place < end_; ++place) {
        const Asked asked = ask(place);
        if (asked.seen) return place * 2 + (asked.partial ? 1 : 0);
      }
    }
    return end_ * 2;
  }

  const SequencesOf<Config>& sequences_;
  ScoreTile keys_;
  Ranges ranges_;
  Window known_;
  int batch_;
  int first_head_;
  bool ascends_;
  int seqlen_q_;
  int tiles_;
  int end_;  ///< end of the visible places
  // Current and next step: 2 · place + (whether it is partial). Places count the heads of the first or last tile of
  // queries, then those of the tile next to it, and so on.
  int own_, next_;
};

}  // namespace jit
