// Masks of a tile as one bit per score. Each part of a mask is evaluated once per argument (query, key, distance
// between both, or block), by any lane, and words of bits are combined.
//
//     q  ░░░░░░░░   k  ░█░░█░█░   q − k  █░░░█░░░   blocks  ████░░░░   ranges  ░░███░░░
//        ████████      ░█░░█░█░          ░█░░░█░░           ████░░░░           ░░░███░░
//        ░░░░░░░░      ░█░░█░█░          ░░█░░░█░           ░░░░████           ░░░░███░
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// A bit for each of a lane's scores in 16 rows, of which it has two, and `blocks` blocks of 8 columns. A word covers
/// 64 columns: adjacent columns in both rows, and those 32 columns further, have adjacent bits.
template <class BlockLayout, int blocks>
class ScoreBits {
 public:
  using Layout = BlockLayout;
  static constexpr int columns = blocks * Layout::block_columns;
  static constexpr int row_words = rounded_up_quotient(columns, bits_of_word);  ///< of all columns of a row

  /// The lane's own columns of a word of its row, counted from its first one.
  static constexpr unsigned lane_columns = [] {
    unsigned bits = 0;
    for (int n = 0; n < bits_of_word / Layout::block_columns; ++n) {
      for (int i = 0; i < 2; ++i) bits |= 1u << Layout::column(0, n, i);
    }
    return bits;
  }();

  /// No bit is set.
  JIT_DEVICE ScoreBits() {
#pragma unroll
    for (int w = 0; w < words; ++w) words_[w] = 0;
  }

  /// Bits from words of rows: word(half, w) covers 32 columns of the upper or lower row, from the lane's first column
  /// on.
  template <class Word>
  static JIT_DEVICE ScoreBits of_rows(const Word& word) {
    ScoreBits bits;
#pragma unroll
    for (int w = 0; w < row_words; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits.words_[w / 2] |= (word(half, w) & lane_columns) << shift(half, w);
    }
    return bits;
  }
  /// Bits from words in the order of this class: word(w) covers 64 columns.
  template <class Word>
  static JIT_DEVICE ScoreBits of_words(const Word& word) {
    static_assert(is_same<Layout, MmaLayout>, "mask bits are in this order");
    ScoreBits bits;
#pragma unroll
    for (int w = 0; w < words; ++w) bits.words_[w] = word(w);
    return bits;
  }
  JIT_DEVICE unsigned word(int w) const { return words_[w]; }

  /// The lane's columns of such a word.
  JIT_DEVICE unsigned row(int half, int w) const { return words_[w / 2] >> shift(half, w) & lane_columns; }

  /// The bit of value 2 half + i of block n.
  JIT_DEVICE bool at(int n, int half, int i) const {
    return (words_[Layout::column(0, n, i) / columns_of_word] >> place(n, half, i) & 1) != 0;
  }
  /// Sets the bits of the n-th block of a word; `bits_of_block` are in the positions of the first block.
  JIT_DEVICE void add(int word, int n, unsigned bits_of_block) {
    words_[word] |= bits_of_block << place(n, 0, 0);  // mutate: ScoresOfTheFirstBlock
  }
  /// The position of a bit in its word.
  static JIT_DEVICE constexpr int place(int n, int half, int i) {
    const int column = Layout::column(0, n, i);
    return column % bits_of_word + shift(half, column / bits_of_word);
  }
  static constexpr int columns_of_word = 2 * bits_of_word;
  static constexpr int words = rounded_up_quotient(columns, columns_of_word);
  static_assert(columns_of_word == score_word_keys);

  friend JIT_DEVICE ScoreBits operator&(const ScoreBits& x, const ScoreBits& y) {
    return joined(x, y, [](unsigned a, unsigned b) { return a & b; });
  }
  friend JIT_DEVICE ScoreBits operator|(const ScoreBits& x, const ScoreBits& y) {
    return joined(x, y, [](unsigned a, unsigned b) { return a | b; });
  }
  /// Bits without a score become arbitrary.
  friend JIT_DEVICE ScoreBits operator~(const ScoreBits& x) {
    return joined(x, x, [](unsigned a, unsigned) { return ~a; });
  }

 private:
  // Neighbors of a row: as many bits as there are up to the next lane's.
  static constexpr int neighbors = Layout::neighbors;
  static JIT_DEVICE constexpr int shift(int half, int w) { return (2 * (w % 2) + half) * neighbors; }
  template <class Join>
  static JIT_DEVICE ScoreBits joined(const ScoreBits& x, const ScoreBits& y, const Join& join) {
    ScoreBits bits;
#pragma unroll
    for (int w = 0; w < words; ++w) bits.words_[w] = join(x.words_[w], y.words_[w]);
    return bits;
  }

  unsigned words_[words];
};

// Mask bits are in the order of these words.
static_assert([] {
  using Bits = ScoreBits<MmaLayout, score_word_keys / MmaLayout::block_columns>;
  bool is_same_order = true;
  for (int n = 0; n < 8; ++n) {
    for (int value = 0; value < 4; ++value) {
      const int q = MmaLayout::row(0, 0, value / 2), k = MmaLayout::column(0, n, value % 2);
      is_same_order &= score_bit_place(q, k, 16).bit == Bits::place(n, value / 2, value % 2);
    }
  }
  return is_same_order;
}());

/// The scores of 16 rows, for which a warp evaluates a mask: its `kept_bits` combines the results of these functions.
/// Rows are queries, the first one a multiple of 8, columns are keys, the first one a multiple of 16. Callbacks are
/// called only for queries and keys that exist. By a whole warp.
template <class BlockLayout, int blocks>
class MaskedScores {
  using Layout = BlockLayout;

 public:
  using Bits = ScoreBits<Layout, blocks>;

  /// `q` and `k` are those of the lane's first score.
  JIT_DEVICE MaskedScores(int q, int k, const BlockContext& context)
      : lane_(lane_id()), q_(q), k_(k), seqlen_q_(context.seqlen_q), seqlen_kv_(context.seqlen_kv) {
    __builtin_assume(k >= 0);
    __builtin_assume(q >= 0);
  }

  /// Bits of the scores whose keys exist.
  JIT_DEVICE Bits of_existing_keys() const {
    // mutate: KeysThatDoNotExist
    return Bits::of_rows([&](int, int w) { return bits_between(w, 0, seqlen_kv_ - k_); });
  }

  /// Keys range(q) of each query.
  template <class Range>
  JIT_DEVICE Bits of_ranges(const Range& range) const {
    int begin[2], end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeyRange keys = range(existing_query(half));
      begin[half] = keys.begin - k_;  // mutate: RangesOfTheUpperRow
      end[half] = keys.end - k_;      // mutate: RangesOfTheWarpsFirstKey
    }
    return Bits::of_rows([&](int half, int w) { return bits_between(w, begin[half], end[half]); });
  }

  /// Bits that are the same for all keys: keep(q).
  template <class Keep>
  JIT_DEVICE Bits of_queries(const Keep& keep) const {
    return of_queries([&](int q, bool) { return keep(q); }, false, false);
  }
  /// Bits of keep(q, is_asked), where `is_asked` says whether a score of the query is needed.
  template <class Keep>
  JIT_DEVICE Bits of_queries(const Bits& asked_scores, const Keep& keep) const {
    const Bits asked = asked_scores & existing();
    bool is_asked[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned scores = 0;
#pragma unroll
      for (int w = 0; w < Bits::row_words; ++w) scores |= asked.row(half, w);
      is_asked[half] =
          (__ballot_sync(full_warp, scores != 0) >> (lane_ & ~3) & 15) != 0;  // lanes that share the row
    }
    return of_queries(keep, is_asked[0], is_asked[1]);
  }

  /// Bits that are the same for all queries: keep(k).
  template <class Keep>
  JIT_DEVICE Bits of_keys(const Keep& keep) const {
    return of_keys([&](int k, int) { return keep(k); }, [](int) { return 0u; });
  }
  template <class Keep>
  JIT_DEVICE Bits of_keys(const Bits& asked_scores, const Keep& keep) const {
    const Bits asked = asked_scores & existing();
    return of_keys(keep, [&](int w) {
      const unsigned own = asked.row(0, w) | asked.row(1, w);    // mutate: KeysOfOneRowAreAsked
      return __reduce_or_sync(full_warp, own << lane_column());  // mutate: KeysAreAskedWhereTheLaneIs
    });
  }

  /// Bits that depend on q − k alone: keep(q, k) is called once per distance.
  template <class Keep>
  JIT_DEVICE Bits of_distances(const Keep& keep) const {
    // Bit e of these words is for all columns e − 15 to the right of their rows. If any of these scores exists, the one
    // in the first row or the first column does.
    constexpr int last = Layout::block_rows - 1,
                  words = rounded_up_quotient(Bits::columns + last, bits_of_word);
    unsigned kept[words + 1];
    kept[words] = 0;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const int further = w * bits_of_word + lane_ - last;
      // mutate: DistancesOfTheFirstRow
      const int q = q_ - lane_row() + maximum(-further, 0), k = k_ - lane_column() + maximum(further, 0);
      // mutate: DistancesOfQueriesThatDoNotExist
      kept[w] = __ballot_sync(full_warp, q < seqlen_q_ && k < seqlen_kv_ && keep(q, k));
    }
    const int own = last + lane_column() - lane_row();
    return Bits::of_rows([&](int half, int w) {
      return __funnelshift_r(kept[w], kept[w + 1], own - Layout::row(0, 0, half));  // mutate: Distances
    });
  }

  /// Bits that are the same for blocks of 8 queries and 16 keys: keep(q, k).
  template <class Keep>
  JIT_DEVICE Bits of_blocks(const Keep& keep) const {
    return of_blocks([&](int q, int k, bool) { return keep(q, k); }, 0u);
  }
  template <class Keep>
  JIT_DEVICE Bits of_blocks(const Bits& asked_scores, const Keep& keep) const {
    const Bits asked = asked_scores & existing();
    unsigned blocks_asked = 0;
#pragma unroll
    for (int w = 0; w < Bits::row_words; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned scores = asked.row(half, w);
        blocks_asked |=
            // mutate: BlocksAreAskedByTheirLowerKeys
            (static_cast<unsigned>((scores & 0xffff) != 0) | static_cast<unsigned>(scores >> 16 != 0) << 1)
            << (half * 16 + w * 2);  // mutate: BlocksOfTheLowerHalfAreNotAsked
      }
    }
    return of_blocks(keep, __reduce_or_sync(full_warp, blocks_asked));
  }

  /// Bits of any other mask: keep(q, k) in a short loop, or in the shortest one if `keep` is long code.
  template <bool is_long = false, class Keep>
  JIT_DEVICE Bits of_scores(const Keep& keep) const {
    constexpr int blocks_of_word = Bits::columns_of_word / Layout::block_columns;
    Bits bits;
#pragma unroll
    for (int word = 0; word < Bits::words; ++word) {
#pragma unroll 1
      for (int n = 0; n < minimum(blocks_of_word, blocks - word * blocks_of_word); ++n) {
        unsigned bits_of_block = 0;
#pragma unroll(is_long ? 1 : Layout::block_values)
        for (int value = 0; value < Layout::block_values; ++value) {
          const int key = Layout::column(k_ + word * Bits::columns_of_word, n, value % 2);
          const bool is_kept = key < seqlen_kv_ && keep(existing_query(value / 2), key);
          bits_of_block |= static_cast<unsigned>(is_kept) << Bits::place(0, value / 2, value % 2);
        }
        bits.add(word, n, bits_of_block);
      }
    }
    return bits;
  }

 private:
  JIT_DEVICE int lane_row() const { return Layout::lane_row(lane_); }
  JIT_DEVICE int lane_column() const { return Layout::lane_column(lane_); }
  JIT_DEVICE int query(int half) const { return Layout::row(q_, 0, half); }
  JIT_DEVICE int existing_query(int half) const { return minimum(query(half), seqlen_q_ - 1); }

  // Bits of the tile's scores whose query and key exist: `keep` may be called only for these.
  JIT_DEVICE Bits existing() const {
    constexpr bool has_others =
        Bits::columns % bits_of_word != 0;  // bits of a row's last word that are no score's
    // mutate: ReadsBehindTheTile
    const int end = has_others ? minimum(seqlen_kv_ - k_, Bits::columns - lane_column()) : seqlen_kv_ - k_;
    return Bits::of_rows(
        // mutate: ReadsWhatNoQueryAsksFor
        [&](int half, int w) { return query(half) < seqlen_q_ ? bits_between(w, 0, end) : 0; });
  }

  template <class Keep>
  JIT_DEVICE Bits of_queries(const Keep& keep, bool is_upper_asked, bool is_lower_asked) const {
    const bool upper = keep(existing_query(0), is_upper_asked),
               lower = keep(existing_query(1), is_lower_asked);
    return Bits::of_rows([&](int half, int) { return (half == 0 ? upper : lower) ? ~0u : 0u; });
  }

  template <class Keep, class Asked>
  JIT_DEVICE Bits of_keys(const Keep& keep, const Asked& asked) const {
    unsigned kept[Bits::row_words];
#pragma unroll
    for (int w = 0; w < Bits::row_words; ++w) {
      const int key = minimum(k_ - lane_column() + w * bits_of_word + lane_, seqlen_kv_ - 1);
      // mutate: KeysLieWhereTheyWereAsked
      kept[w] = __ballot_sync(full_warp, keep(key, (asked(w) >> lane_ & 1) != 0)) >> lane_column();
    }
    return Bits::of_rows([&](int, int w) { return kept[w]; });
  }

  // A lane has a block: the first 16 those of the upper queries.
  template <class Keep>
  JIT_DEVICE Bits of_blocks(const Keep& keep, unsigned asked) const {
    static_assert(Bits::columns <= 16 * 16, "a lane has one block of 16 keys");
    const int q = minimum(q_ - lane_row() + lane_ / 16 * 8, seqlen_q_ - 1);  // mutate: BlocksOfOneRow
    // mutate: BlocksAreOfEightKeys
    const int k = minimum(k_ - lane_column() + lane_ % 16 * 16, seqlen_kv_ - 1);
    const unsigned kept = __ballot_sync(full_warp, keep(q, k, (asked >> lane_ & 1) != 0));
    return Bits::of_rows([&](int half, int w) {
      const unsigned pair = kept >> (half * 16 + w * 2);
      return (pair & 1) * 0xffff | (pair >> 1 & 1) * 0xffff0000;
    });
  }

  int lane_;
  int q_;
  int k_;
  int seqlen_q_;
  int seqlen_kv_;
};

}  // namespace jit
