// Results of a mask for a block of keys, so that each lane of a warp can classify its own tile of queries.
//
// Most masks are arithmetic and remember nothing. A document mask compares the ids of a tile's queries with those of
// the keys: the latter are read once, the former from a table that an earlier kernel has written.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/score_mask.cuh"

namespace jit {

/// `ranges`: the number of component masks that need the range of words of a tile's queries; if 1, `query_range`
/// computes it, by a whole warp. The constructor is called by a warp, `classify` by lanes, unless `needs_warp`.
template <class Mask>
struct KeyMemory {
  static constexpr int ranges = 0;
  static constexpr bool needs_warp = jit::needs_warp<Mask>;
  JIT_DEVICE KeyMemory(const Mask&, const ScoreTile& /*keys*/) {}
  JIT_DEVICE TileClass classify(const Mask& mask, const ScoreTile& tile, const WordRange& /*queries*/) const {
    return mask.classify(tile);
  }
};

template <int slot_q, int slot_kv>
class KeyMemory<DocumentMask<slot_q, slot_kv>> {
  using Mask = DocumentMask<slot_q, slot_kv>;

 public:
  static constexpr int ranges = 1;
  static constexpr bool needs_warp = false;
  JIT_DEVICE KeyMemory(const Mask& mask, const ScoreTile& keys)
      : keys_(Mask::id_range(mask.ids_kv, keys.k_begin, keys.k_end)) {}
  JIT_DEVICE TileClass classify(const Mask&, const ScoreTile&, const WordRange& queries) const {
    return Mask::classify(queries, keys_);
  }
  static JIT_DEVICE WordRange query_range(const Mask& mask, int q_begin, int q_end) {
    return Mask::id_range(mask.ids_q, q_begin, q_end);
  }

 private:
  WordRange keys_;
};

/// Remembers the ends of the keys' subtrees; positions of queries are arithmetic.
template <int slot>
class KeyMemory<TreeMask<slot>> {
  using Mask = TreeMask<slot>;

 public:
  static constexpr int ranges = 0;
  static constexpr bool needs_warp = false;
  JIT_DEVICE KeyMemory(const Mask& mask, const ScoreTile& keys)
      : ends_(mask.end_range(keys.k_begin, keys.k_end)) {}
  JIT_DEVICE TileClass classify(const Mask& mask, const ScoreTile& tile, const WordRange& /*queries*/) const {
    return mask.classify(tile, ends_);
  }

 private:
  WordRange ends_;
};

template <class Op, class A, class B>
class KeyMemory<CombinedMask<Op, A, B>> {
  using Mask = CombinedMask<Op, A, B>;

 public:
  static constexpr int ranges = KeyMemory<A>::ranges + KeyMemory<B>::ranges;
  static constexpr bool needs_warp = KeyMemory<A>::needs_warp || KeyMemory<B>::needs_warp;
  JIT_DEVICE KeyMemory(const Mask& mask, const ScoreTile& keys) : a_(mask.a, keys), b_(mask.b, keys) {}
  JIT_DEVICE TileClass classify(const Mask& mask, const ScoreTile& tile, const WordRange& queries) const {
    return Op::of_classes(a_.classify(mask.a, tile, queries), b_.classify(mask.b, tile, queries));
  }
  static JIT_DEVICE WordRange query_range(const Mask& mask, int q_begin, int q_end) {
    if constexpr (KeyMemory<A>::ranges == 1) {
      return KeyMemory<A>::query_range(mask.a, q_begin, q_end);
    } else {
      return KeyMemory<B>::query_range(mask.b, q_begin, q_end);
    }
  }

 private:
  KeyMemory<A> a_;
  KeyMemory<B> b_;
};

template <class A>
struct KeyMemory<NotMask<A>> : KeyMemory<A> {
  using Mask = NotMask<A>;

  JIT_DEVICE KeyMemory(const Mask& mask, const ScoreTile& keys) : KeyMemory<A>(mask.a, keys) {}

  JIT_DEVICE TileClass classify(const Mask& mask, const ScoreTile& tile, const WordRange& queries) const {
    return class_of_inverse(KeyMemory<A>::classify(mask.a, tile, queries));
  }

  static JIT_DEVICE WordRange query_range(const Mask& mask, int q_begin, int q_end) {
    return KeyMemory<A>::query_range(mask.a, q_begin, q_end);
  }
};

template <class A, class Kept>
struct KeyMemory<ScoredMask<A, Kept>> : KeyMemory<A> {
  using Mask = ScoredMask<A, Kept>;

  JIT_DEVICE KeyMemory(const Mask& mask, const ScoreTile& keys) : KeyMemory<A>(mask, keys) {}

  JIT_DEVICE TileClass classify(const Mask& mask, const ScoreTile& tile, const WordRange& queries) const {
    return mask.class_with_score(KeyMemory<A>::classify(mask, tile, queries), tile);
  }
};

/// The mask as producers of gradients ask it: parts of positions share their look-ups (positioned_memory.cuh).
template <class Mask>
struct AskedMask {
  using type = Mask;
};
template <class A, class Kept>
struct AskedMask<ScoredMask<A, Kept>> {
  using type = ScoredMask<typename AskedMask<A>::type, Kept>;
};

template <class Config>
using AskedMaskOf = typename AskedMask<typename Config::Mask>::type;

/// As KeyMemory, beside a table of ranges of tiles of queries. Masks of positions have one that needs no look-ups.
/// `Record` is what the table holds of a tile: a whole warp makes it (record_of), and lanes classify by it.
template <class Mask>
struct TableMemory : KeyMemory<Mask> {
  using Record = WordRange;
  static constexpr bool spares_look_ups = false;
  using KeyMemory<Mask>::KeyMemory;
};

/// Whether producers use a table of the ranges of tiles of queries: of words, or of positions. With a mask of blocks
/// they go from tile to tile instead; in the order of turns they cannot, and look-ups of positions would spill.
template <class Config>
inline constexpr bool reads_query_ranges = [] {
  using Mask = AskedMaskOf<Config>;
  using Memory = TableMemory<Mask>;
  bool goes_from_tile_to_tile = has_next<Mask>;
  if constexpr (requires { Config::deterministic; })
    goes_from_tile_to_tile &= !(Config::deterministic && Memory::spares_look_ups);
  return Memory::ranges == 1 && !Memory::needs_warp && !goes_from_tile_to_tile;
}();

/// Replaces the table if the mask uses none.
struct NoQueryRanges {
  static constexpr bool are_known = false;
  using Record = WordRange;
  JIT_DEVICE Record of(int /*tile*/) const { return {0, 0}; }
};

}  // namespace jit
