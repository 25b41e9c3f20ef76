// Built-in masks and how masks combine. A mask is a struct with
//   explicit Mask(const BlockContext&)
//   KeyRange key_range(int q_begin, int q_end)   keys outside of it are dropped for all of these queries
//   TileClass classify(const ScoreTile&)         exact or `partial`; called by whole warps with a uniform result;
//                                                lanes may classify tiles of their own, unless the mask has
//                                                `static constexpr bool needs_warp = true`
//   bool keep(int q, int k)                      whether query q sees key k
// Only `keep` decides the result: key_range and classify may be as coarse as they like, but never wrong.
// A mask whose queries see contiguous keys may define their range, which makes partial tiles cheap:
//   KeyRange row_range(int q)                    exactly the keys that query q sees, within the sequence
//   static constexpr bool rows_begin_first = true      all ranges begin with the first key; `||` of two such
//                                                      masks has row ranges, too
// A mask whose key_range needs a warp may define a coarser one for a single lane:
//   KeyRange lane_key_range(int seqlen_kv, int q_begin, int q_end)
// A mask whose visible tiles are sparse may find the next one, by a whole warp:
//   int next_key(int q_begin, int q_end, int k)      no query sees a key in [k, result)
//   int next_query(int k_begin, int k_end, int q)    no query in [q, result) sees a key
// A mask that classifies tiles per lane without reading memory may find the next visible one, by a whole warp:
//   SeenTile next_tile(int q_begin, int q_end, int k, int k_end, int tile_kv)
// A mask with terms splits `keep` in two, which makes partial tiles cheap, too: one term per query, and one word per
// key, which the key producer writes to shared memory.
//   static constexpr int key_words = 1
//   int key_word(int k)                          the word of key k
//   QueryTerm query_term(int q)                  the term of query q
//   bool keeps(QueryTerm, int k, int key_word)   keep(q, k)
// A mask that reads memory per score may prefetch what it reads of queries to the L1 cache, by a whole warp:
//   void touch(int q_begin, int q_end)
// A mask whose parts are equal for many scores may define them, so that each part is evaluated once:
//   static constexpr bool has_parts = true
//   auto kept_bits(const Scores& scores)         bits, combined from those of `scores` (steps/score_bits.cuh)
#pragma once

#include "base/prelude.cuh"
#include "problem/document_mask.cuh"
#include "problem/draft_tree_mask.cuh"
#include "problem/functor.cuh"
#include "problem/tree_mask.cuh"

namespace jit {

template <class Mask>
concept has_row_range = requires(const Mask& mask) {
  mask.row_range(0);
};

/// Whether every query sees a prefix of the keys.
template <class Mask>
concept rows_begin_first = Mask::rows_begin_first;

/// The number of words per key, 0 or 1, that a mask with terms needs; 2: the mask has no terms.
template <class Mask>
inline constexpr int key_words = [] {
  if constexpr (has_row_range<Mask>) {
    return 0;
  } else if constexpr (requires { Mask::key_words; }) {
    return Mask::key_words;
  } else {
    return 2;
  }
}();

/// A key_range of any mask that a single lane can compute.
template <class Mask>
JIT_DEVICE KeyRange lane_key_range(const Mask& mask, int seqlen_kv, int q_begin, int q_end) {
  if constexpr (requires { mask.lane_key_range(seqlen_kv, q_begin, q_end); }) {
    return mask.lane_key_range(seqlen_kv, q_begin, q_end);
  } else if constexpr (has_row_range<Mask>) {
    return mask.key_range(q_begin, q_end);
  } else {
    return {0, seqlen_kv};
  }
}

/// Whether a mask is evaluated by parts.
template <class Mask>
concept has_parts = Mask::has_parts;

/// Whether all tiles have the same class, so that `classify` is a constant.
template <class Mask>
concept has_one_class = Mask::has_one_class;

/// Whether a mask is evaluated by parts or by row ranges, which can be parts of a combination.
template <class Mask>
inline constexpr bool is_made_of_parts = has_parts<Mask> || has_row_range<Mask>;

/// Whether `keep` is so long that copies of it take long to compile.
template <class Mask>
concept is_long = Mask::is_long;

/// The bits of the scores that a mask keeps.
template <class Mask, class Scores>
JIT_DEVICE auto kept_bits(const Mask& mask, const Scores& scores) {
  if constexpr (has_row_range<Mask>) {
    return scores.of_ranges([&](int q) { return mask.row_range(q); });
  } else if constexpr (has_parts<Mask>) {
    return mask.kept_bits(scores);
  } else {
    return scores.template of_scores<is_long<Mask>>([&](int q, int k) { return mask.keep(q, k); });
  }
}

/// Whether query heads of one batch entry may see different keys. A text has the head as an argument, unless it is
/// known not to use it.
template <class Mask>
inline constexpr bool depends_on_head = [] {
  if constexpr (requires { Mask::reads_head; }) {
    return Mask::reads_head;
  } else {
    return __is_base_of(TextMask, Mask);
  }
}();

/// Whether `classify` needs a whole warp with the same tile.
template <class Mask>
concept needs_warp = Mask::needs_warp;

/// Whether query heads of one batch entry actually see different keys.
template <class Mask>
JIT_DEVICE bool heads_differ(const Mask& mask) {
  if constexpr (requires { mask.differs_by_head(); }) {
    return mask.differs_by_head();
  } else {
    return depends_on_head<Mask>;
  }
}

template <class Mask>
concept has_next = requires(const Mask& mask) {
  mask.next_key(0, 0, 0);
};

/// Whether a mask reads a table of blocks. Any 16 keys from a multiple of 16 on lie in one block.
template <class Mask>
inline constexpr bool reads_blocks = has_next<Mask>;

/// next_key and next_query of a mask; without them, the argument.
template <class Mask>
JIT_DEVICE int next_key(const Mask& mask, int q_begin, int q_end, int k) {
  if constexpr (has_next<Mask>) {
    return mask.next_key(q_begin, q_end, k);
  } else {
    return k;
  }
}
template <class Mask>
JIT_DEVICE int next_query(const Mask& mask, int k_begin, int k_end, int q) {
  if constexpr (has_next<Mask>) {
    return mask.next_query(k_begin, k_end, q);
  } else {
    return q;
  }
}

template <class Mask>
concept touches_queries = requires(const Mask& mask) {
  mask.touch(0, 0);
};
/// touch of a mask, if it has one.
template <class Mask>
JIT_DEVICE void touch(const Mask& mask, int q_begin, int q_end) {
  if constexpr (touches_queries<Mask>) mask.touch(q_begin, q_end);
}

/// Whether a mask has next_tile.
template <class Mask>
concept finds_tiles = requires(const Mask& mask) {
  mask.next_tile(0, 0, 0, 0, 0);
};

/// The mask that decides the scores of a non-empty tile, if a part of it suffices.
template <class Mask, int tile_q, int tile_kv>
struct MaskOfTile {
  using type = Mask;
};

/// Words of precomputed bits of a tile, in the order of base/bit_words.cuh; 0: the mask has none, or no whole words of
/// a tile.
template <class Mask, int tile_q, int tile_kv>
inline constexpr int mask_bit_words = 0;

/// The order of tiles of tile_q queries by their work, if the mask reads a table of it.
template <class Mask, int tile_q>
struct TilesByWork {
  static constexpr bool are_known = false;
};

template <class Config>
using TileMask = typename MaskOfTile<typename Config::Mask, Config::tile_q, Config::tile_kv>::type;

/// The term of a query; for masks with row ranges, its range.
template <class Mask>
JIT_DEVICE auto query_term(const Mask& mask, int q) {
  if constexpr (has_row_range<Mask>) {
    return mask.row_range(q);
  } else {
    return mask.query_term(q);
  }
}
template <class Mask, class QueryTerm>
JIT_DEVICE bool keeps(const Mask& mask, const QueryTerm& query, int k, int key_word) {
  if constexpr (has_row_range<Mask>) {
    return (k >= query.begin) & (k < query.end);
  } else {
    return mask.keeps(query, k, key_word);
  }
}

/// The terms of two masks.
template <class A, class B>
struct TermPair {
  A a;
  B b;
};
template <class A, class B>
JIT_DEVICE TermPair<A, B> term_pair(const A& a, const B& b) {
  return {a, b};
}

/// The word of key k that one of two masks needs.
template <class A, class B>
JIT_DEVICE int key_word_of(const A& a, const B& b, int k) {
  if constexpr (key_words<A> == 1) {
    return a.key_word(k);
  } else {
    return b.key_word(k);
  }
}

/// Every query sees every key.
struct NoMask {
  static constexpr bool has_one_class = true;
  int seqlen_kv;
  __device__ explicit NoMask(const BlockContext& context) : seqlen_kv(context.seqlen_kv) {}
  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }
  __device__ TileClass classify(const ScoreTile&) const { return TileClass::full; }
  __device__ bool keep(int, int) const { return true; }
  __device__ KeyRange row_range(int) const { return {0, seqlen_kv}; }
  static constexpr bool rows_begin_first = true;
};

/// Whether a mask keeps every score.
template <class Mask>
inline constexpr bool keeps_every_score = is_same<Mask, NoMask>;

/// A query sees the keys up to its own position.
template <Alignment alignment>
struct CausalMask {
  int shift;
  int seqlen_kv;
  __device__ explicit CausalMask(const BlockContext& context)
      : shift(query_shift<alignment>(context)), seqlen_kv(context.seqlen_kv) {}
  __device__ KeyRange key_range(int, int q_end) const {
    return {0, maximum(0, minimum(seqlen_kv, q_end + shift))};
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    if (tile.k_end - 1 <= tile.q_begin + shift) return TileClass::full;  // mutate: TileClassOffByOne
    if (tile.k_begin > tile.q_end - 1 + shift) return TileClass::empty;
    return TileClass::partial;
  }
  __device__ bool keep(int q, int k) const { return k <= q + shift; }  // mutate: MaskOffByOne
  __device__ KeyRange row_range(int q) const { return {0, minimum(seqlen_kv, q + shift + 1)}; }
  static constexpr bool rows_begin_first = true;
};

/// A causal mask where int32 tensor (batch) in slot `slot` is not 0; else a query sees all keys of its batch
/// entry.
template <int slot>
struct CausalPerRequestMask {
  CausalMask<Alignment::bottom_right> causal;
  NoMask none;
  bool is_causal;
  __device__ explicit CausalPerRequestMask(const BlockContext& context)
      : causal(context), none(context), is_causal(tensor_data<int>(context, slot)[context.batch] != 0) {}
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    return is_causal ? causal.key_range(q_begin, q_end) : none.key_range(q_begin, q_end);
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    return is_causal ? causal.classify(tile) : TileClass::full;
  }
  __device__ bool keep(int q, int k) const { return !is_causal || causal.keep(q, k); }
  __device__ KeyRange row_range(int q) const { return is_causal ? causal.row_range(q) : none.row_range(q); }
  static constexpr bool rows_begin_first = true;
};

/// A query sees `left` keys before its own position and `right` after it; −1 leaves that side open.
template <int left, int right, Alignment alignment>
struct SlidingWindowMask {
  int shift;
  int seqlen_kv;
  __device__ explicit SlidingWindowMask(const BlockContext& context)
      : shift(query_shift<alignment>(context)), seqlen_kv(context.seqlen_kv) {}
  // 64-bit: a window may be as wide as an int, and then position + width does not fit one.
  __device__ long long first(int q) const { return left < 0 ? 0 : static_cast<long long>(q) + shift - left; }
  __device__ long long last(int q) const {
    return right < 0 ? seqlen_kv : static_cast<long long>(q) + shift + right;
  }
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    const long long begin = maximum(0ll, minimum<long long>(seqlen_kv, first(q_begin)));
    const long long end = maximum(0ll, minimum<long long>(seqlen_kv, last(q_end - 1) + 1));
    return {static_cast<int>(begin), static_cast<int>(end)};
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    if (tile.k_begin >= first(tile.q_end - 1) && tile.k_end - 1 <= last(tile.q_begin)) return TileClass::full;
    if (tile.k_end - 1 < first(tile.q_begin) || tile.k_begin > last(tile.q_end - 1)) return TileClass::empty;
    return TileClass::partial;
  }
  // Distances of existing queries and keys fit an int, and one that is left of the window is a large unsigned number.
  __device__ bool keep(int q, int k) const {
    const int distance = k - (q + shift);
    if constexpr (left < 0) return right < 0 || distance <= right;
    if constexpr (right < 0) return distance >= -left;
    return static_cast<unsigned>(distance) + left <= static_cast<unsigned>(left) + right;
  }
  __device__ KeyRange row_range(int q) const { return key_range(q, q + 1); }
};

/// Every query sees the first `limit` keys and no others; combine with `||`.
struct FirstKeysMask {
  int limit;

  __device__ KeyRange key_range(int, int) const { return {0, limit}; }

  __device__ TileClass classify(const ScoreTile& tile) const {
    if (tile.k_end <= limit) return TileClass::full;
    return tile.k_begin >= limit ? TileClass::empty : TileClass::partial;
  }

  __device__ bool keep(int, int k) const { return k < limit; }

  __device__ KeyRange row_range(int) const { return {0, limit}; }
  static constexpr bool rows_begin_first = true;
};

template <int length>
struct PrefixMask : FirstKeysMask {
  __device__ explicit PrefixMask(const BlockContext& context)
      : FirstKeysMask{minimum(length, context.seqlen_kv)} {}
};

/// A prefix with a length for each batch entry: int32 tensor (batch) in slot `slot`. Lengths outside of
/// [0, seqlen_kv] count as the nearer end.
template <int slot>
struct PrefixLengthsMask : FirstKeysMask {
  __device__ explicit PrefixLengthsMask(const BlockContext& context)
      : FirstKeysMask{
            maximum(0, minimum(tensor_data<int>(context, slot)[context.batch], context.seqlen_kv))} {}
};

/// Combines the ranges, tile classes and bits of two masks that must both keep a score.
struct Both {
  static JIT_DEVICE KeyRange of_ranges(const KeyRange& x, const KeyRange& y) {
    return {maximum(x.begin, y.begin), minimum(x.end, y.end)};
  }
  static JIT_DEVICE TileClass of_classes(TileClass x, TileClass y) {
    if (x == TileClass::empty || y == TileClass::empty) return TileClass::empty;
    return x == TileClass::full && y == TileClass::full ? TileClass::full : TileClass::partial;
  }
  static JIT_DEVICE int of_places(int x, int y) { return maximum(x, y); }
  template <class Bits>
  static JIT_DEVICE Bits of_bits(const Bits& x, const Bits& y) {
    return x & y;
  }
  static constexpr bool one_is_enough = false;
  static constexpr bool ranges_stay_ranges = true;  ///< of_ranges of any two exact ranges is exact
};

/// Combines those of two masks of which one must keep a score.
struct Either {
  // The smallest range around both.
  static JIT_DEVICE KeyRange of_ranges(const KeyRange& x, const KeyRange& y) {
    if (x.begin >= x.end) return y;
    if (y.begin >= y.end) return x;
    return {minimum(x.begin, y.begin), maximum(x.end, y.end)};
  }
  static JIT_DEVICE TileClass of_classes(TileClass x, TileClass y) {
    if (x == TileClass::full || y == TileClass::full) return TileClass::full;
    return x == TileClass::empty && y == TileClass::empty ? TileClass::empty : TileClass::partial;
  }
  static JIT_DEVICE int of_places(int x, int y) { return minimum(x, y); }
  template <class Bits>
  static JIT_DEVICE Bits of_bits(const Bits& x, const Bits& y) {
    return x | y;
  }
  static constexpr bool one_is_enough = true;
  static constexpr bool ranges_stay_ranges = false;
};

JIT_DEVICE TileClass class_of_inverse(TileClass x) {
  if (x == TileClass::full) return TileClass::empty;
  return x == TileClass::empty ? TileClass::full : TileClass::partial;
}

/// Two masks as one.
template <class Op, class A, class B>
struct CombinedMask {
  A a;
  B b;
  __device__ explicit CombinedMask(const BlockContext& context) : a(context), b(context) {}
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    return Op::of_ranges(a.key_range(q_begin, q_end), b.key_range(q_begin, q_end));
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    return Op::of_classes(a.classify(tile), b.classify(tile));
  }
  __device__ bool keep(int q, int k) const {
    return Op::one_is_enough ? a.keep(q, k) || b.keep(q, k) : a.keep(q, k) && b.keep(q, k);
  }
  __device__ KeyRange lane_key_range(int seqlen_kv, int q_begin, int q_end) const {
    return Op::of_ranges(jit::lane_key_range(a, seqlen_kv, q_begin, q_end),
                         jit::lane_key_range(b, seqlen_kv, q_begin, q_end));
  }
  __device__ int next_key(int q_begin, int q_end, int k) const requires(has_next<A> || has_next<B>) {
    return Op::of_places(jit::next_key(a, q_begin, q_end, k), jit::next_key(b, q_begin, q_end, k));
  }
  __device__ int next_query(int k_begin, int k_end, int q) const requires(has_next<A> || has_next<B>) {
    return Op::of_places(jit::next_query(a, k_begin, k_end, q), jit::next_query(b, k_begin, k_end, q));
  }
  __device__ void touch(int q_begin, int q_end) const requires(touches_queries<A> || touches_queries<B>) {
    jit::touch(a, q_begin, q_end);
    jit::touch(b, q_begin, q_end);
  }
  __device__ bool differs_by_head() const { return heads_differ(a) || heads_differ(b); }
  static constexpr bool needs_warp = jit::needs_warp<A> || jit::needs_warp<B>;
  static constexpr bool rows_begin_first = jit::rows_begin_first<A> && jit::rows_begin_first<B>;
  static constexpr bool has_ranges =
      (Op::ranges_stay_ranges || rows_begin_first) && has_row_range<A> && has_row_range<B>;
  __device__ KeyRange row_range(int q) const requires has_ranges {
    return Op::of_ranges(a.row_range(q), b.row_range(q));
  }
  static constexpr bool has_parts =
      jit::has_parts<A> || jit::has_parts<B> || (has_row_range<A> && has_row_range<B>);
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    return Op::of_bits(jit::kept_bits(a, scores), jit::kept_bits(b, scores));
  }
  static constexpr int key_words = jit::key_words<A> + jit::key_words<B>;
  __device__ int key_word(int k) const { return key_word_of(a, b, k); }
  __device__ auto query_term(int q) const { return term_pair(jit::query_term(a, q), jit::query_term(b, q)); }
  template <class QueryTerm>
  __device__ bool keeps(const QueryTerm& query, int k, int key_word) const {
    return Op::of_bits(jit::keeps(a, query.a, k, key_word), jit::keeps(b, query.b, k, key_word));
  }
};

/// A tile that is not empty for both masks together is empty for neither.
template <class A, class B, int tile_q, int tile_kv>
struct MaskOfTile<CombinedMask<Both, A, B>, tile_q, tile_kv> {
  using type = CombinedMask<Both, typename MaskOfTile<A, tile_q, tile_kv>::type,
                            typename MaskOfTile<B, tile_q, tile_kv>::type>;
};

/// The order of the block mask of a combination; a mask contains at most one.
template <class A, class B, int tile_q>
struct TilesByWork<CombinedMask<Both, A, B>, tile_q>
    : ChosenType<TilesByWork<A, tile_q>::are_known, TilesByWork<A, tile_q>, TilesByWork<B, tile_q>>::type {};

template <class Op, class A, class B>
inline constexpr bool depends_on_head<CombinedMask<Op, A, B>> = depends_on_head<A> || depends_on_head<B>;
template <class A, class B>
using AndMask = CombinedMask<Both, A, B>;
template <class A, class B>
using OrMask = CombinedMask<Either, A, B>;

/// A query sees the keys that the mask drops.
template <class A>
struct NotMask {
  A a;
  int seqlen_kv;
  __device__ explicit NotMask(const BlockContext& context) : a(context), seqlen_kv(context.seqlen_kv) {}
  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }
  __device__ TileClass classify(const ScoreTile& tile) const { return class_of_inverse(a.classify(tile)); }
  __device__ bool keep(int q, int k) const { return !a.keep(q, k); }
  __device__ void touch(int q_begin, int q_end) const requires(touches_queries<A>) {
    a.touch(q_begin, q_end);
  }
  __device__ bool differs_by_head() const { return heads_differ(a); }
  static constexpr bool needs_warp = jit::needs_warp<A>;
  static constexpr bool has_parts = is_made_of_parts<A>;
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    return ~jit::kept_bits(a, scores);
  }
  static constexpr int key_words = jit::key_words<A>;
  __device__ int key_word(int k) const { return a.key_word(k); }
  __device__ auto query_term(int q) const { return jit::query_term(a, q); }
  template <class QueryTerm>
  __device__ bool keeps(const QueryTerm& query, int k, int key_word) const {
    return !jit::keeps(a, query, k, key_word);
  }
};

template <class Op, class A, class B>
inline constexpr bool reads_blocks<CombinedMask<Op, A, B>> = reads_blocks<A> || reads_blocks<B>;
template <class A>
inline constexpr bool reads_blocks<NotMask<A>> = reads_blocks<A>;

template <class A>
inline constexpr bool depends_on_head<NotMask<A>> = depends_on_head<A>;

}  // namespace jit
