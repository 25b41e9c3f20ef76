// Results of a mask of positions for a block of keys, so that each lane of a warp can classify its own tile of queries.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/key_memory.cuh"
#include "problem/masks.cuh"
#include "problem/positions.cuh"
#include "problem/whole_functor.cuh"

namespace jit {

/// Memory of a block of keys whose words are compared with those of tiles of queries, by positions.
template <class Mask, class Places>
requires(KeyMemory<Mask>::ranges > 0) class KeyMemory<PositionedMask<Mask, Places>> {
  using Positioned = PositionedMask<Mask, Places>;

 public:
  static constexpr int ranges = KeyMemory<Mask>::ranges;
  static constexpr bool needs_warp = KeyMemory<Mask>::needs_warp;
  JIT_DEVICE KeyMemory(const Positioned& mask, const ScoreTile& keys)
      : keys_(mask.places.keys(keys.k_begin, keys.k_end)),
        of_mask_(mask.mask, {0, 0, keys_.begin, keys_.end}) {}
  JIT_DEVICE TileClass classify(const Positioned& mask, const ScoreTile& tile, const WordRange& words) const {
    const KeyRange queries = mask.places.queries(tile.q_begin, tile.q_end);
    return of_mask_.classify(mask.mask, {queries.begin, queries.end, keys_.begin, keys_.end}, words);
  }
  static JIT_DEVICE WordRange query_range(const Positioned& mask, int q_begin, int q_end) {
    const KeyRange queries = mask.places.queries(q_begin, q_end);
    return KeyMemory<Mask>::query_range(mask.mask, queries.begin, queries.end);
  }

 private:
  KeyRange keys_;
  KeyMemory<Mask> of_mask_;
};

template <class Op, class A, class B>
requires is_positioned<CombinedMask<Op, A, B>>
struct AskedMask<CombinedMask<Op, A, B>> {
  using Of = Whole<CombinedMask<Op, A, B>>;
  using type = PositionedMask<typename Of::type, typename Of::Places>;
};
template <class A>
requires is_positioned<A>
struct AskedMask<NotMask<A>> {
  using type = PositionedMask<typename Whole<NotMask<A>>::type, typename Whole<A>::Places>;
};
/// Positions and words of a tile's queries.
struct PositionsAndWords {
  WordRange positions;
  WordRange words;
};

/// Positions of queries come from the table, since producers lack the registers to look them up; words, too, if the
/// mask compares those of one of its parts.
template <class Mask, class Places>
requires(!KeyMemory<Mask>::needs_warp &&
         KeyMemory<Mask>::ranges <= 1) class TableMemory<PositionedMask<Mask, Places>> {
  using Positioned = PositionedMask<Mask, Places>;
  static constexpr bool has_words = KeyMemory<Mask>::ranges == 1;

 public:
  using Record = typename ChosenType<has_words, PositionsAndWords, WordRange>::type;
  static constexpr int ranges = 1;
  static constexpr bool spares_look_ups = true;
  static constexpr bool needs_warp = false;
  JIT_DEVICE TableMemory(const Positioned& mask, const ScoreTile& keys)
      : keys_(mask.places.keys(keys.k_begin, keys.k_end)),
        of_mask_(mask.mask, {0, 0, keys_.begin, keys_.end}) {}
  JIT_DEVICE TileClass classify(const Positioned& mask, const ScoreTile&, const Record& queries) const {
    if constexpr (has_words) {
      return of_mask_.classify(mask.mask, tile_of(queries.positions), queries.words);
    } else {
      return of_mask_.classify(mask.mask, tile_of(queries), {0, 0});
    }
  }
  static JIT_DEVICE Record query_range(const Positioned& mask, int q_begin, int q_end) {
    const KeyRange queries = mask.places.queries(q_begin, q_end);
    const WordRange positions{queries.begin, queries.end - 1};  // mutate: HullOfQueriesInTheTable
    if constexpr (has_words) {
      // mutate: WordsOfRowsInTheTable
      return {positions, KeyMemory<Mask>::query_range(mask.mask, queries.begin, queries.end)};
    } else {
      return positions;
    }
  }

 private:
  JIT_DEVICE ScoreTile tile_of(const WordRange& queries) const {
    return {queries.low, queries.high + 1, keys_.begin, keys_.end};
  }

  KeyRange keys_;
  KeyMemory<Mask> of_mask_;
};

}  // namespace jit
