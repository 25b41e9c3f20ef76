// Applies the score functor and the mask to a tile of scores.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "steps/score_bits.cuh"
#include "steps/whole_positions.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The position of a lane's scores: its first one belongs to query `q` and key `k`. `key_words` is the shared address
/// of the word of key k, which those of the next keys follow, for masks with key words.
struct ScorePlace {
  int q;
  int k;
  unsigned key_words = 0;
};

/// Sets scores to −inf that lie outside of their rows' ranges. Relative to the thread's first key, columns
/// are constants: one comparison each, and one more where the compiler cannot see that rows begin with the
/// first key.
template <class Scores, class Mask>
JIT_DEVICE void drop_outside_row_ranges(Scores& scores, const ScorePlace& place, const Mask& mask,
                                        int last_query) {
  __builtin_assume(place.k >= 0);
  scores.for_each_row(place.q, [&](int r, int query) {
    const KeyRange range = mask.row_range(minimum(query, last_query));
    const int begin = range.begin - place.k, end = range.end - place.k;
    scores.for_each_of_row(r, [&](float& score, int column) {  // without branches, which take long to compile
      score = (column >= end) | (column < begin) ? negative_infinity() : score;
    });
  });
}

/// Sets scores to −inf that the mask drops, by its terms and words of keys.
template <class Scores, class Mask>
JIT_DEVICE void drop_by_terms(Scores& scores, const ScorePlace& place, const Mask& mask,
                              const BlockContext& context) {
  using Layout = typename Scores::Layout;
  __builtin_assume(place.k >= 0);
  const int end = context.seqlen_kv - place.k;
#pragma unroll
  for (int m = 0; m < Scores::row_blocks; ++m) {
    const auto upper = query_term(mask, minimum(Layout::row(place.q, m, 0), context.seqlen_q - 1));
    const auto lower = query_term(mask, minimum(Layout::row(place.q, m, 1), context.seqlen_q - 1));
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
      int words[2];
      load_shared(words, place.key_words + Layout::column(0, n, 0) * 4);
#pragma unroll
      for (int i = 0; i < Scores::pair; ++i) {
        const int column = Layout::column(0, n, i);
        float& above = scores.at(2 * m, n, i);
        float& below = scores.at(2 * m + 1, n, i);
        above = (column < end) & keeps(mask, upper, place.k + column, words[i]) ? above : negative_infinity();
        below = (column < end) & keeps(mask, lower, place.k + column, words[i]) ? below : negative_infinity();
      }
    }
  }
}

/// Sets scores of 16 rows to −inf whose bits are not set.
template <class Scores, class Bits>
JIT_DEVICE void drop_all_but(Scores& scores, int m, const Bits& kept) {
#pragma unroll
  for (int n = 0; n < Scores::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Scores::Layout::block_values; ++i) {
      float& score = scores.registers[m][n][i];
      score = kept.at(n, i / 2, i % 2) ? score : negative_infinity();  // mutate: RowsForColumns
    }
  }
}

/// Sets scores to −inf that the mask drops; evaluates the mask by parts, or per score if it has none.
template <class Scores, class Mask>
JIT_DEVICE void drop_by_bits(Scores& scores, const ScorePlace& place, const Mask& mask,
                             const BlockContext& context) {
  using Layout = typename Scores::Layout;
#pragma unroll
  for (int m = 0; m < Scores::row_blocks; ++m) {
    const MaskedScores<Layout, Scores::column_blocks> asked(Layout::row(place.q, m, 0), place.k, context);
    // mutate: KeysBehindTheLastOne
    drop_all_but(scores, m, kept_bits(mask, asked) & asked.of_existing_keys());
  }
}

/// A mask whose bits for a tile may be in shared memory, in the lanes' order: a word for each 64 keys.
template <class Within>
struct SharedScoreBits {
  Within within;    ///< the mask of tiles without bits
  unsigned words;   ///< shared address of the lane's first word; 0: none
  unsigned stride;  ///< bytes from one word to the next
};
template <class Mask>
inline constexpr bool has_shared_bits = false;
template <class Within>
inline constexpr bool has_shared_bits<SharedScoreBits<Within>> = true;

/// Sets scores to −inf whose bits in shared memory are not set, or whose keys do not exist.
template <class Scores, class Within>
JIT_DEVICE void drop_by_shared_bits(Scores& scores, const ScorePlace& place,
                                    const SharedScoreBits<Within>& mask, const BlockContext& context) {
  static_assert(Scores::row_blocks == 1, "a warp's words are of 16 rows");
  using Asked = MaskedScores<typename Scores::Layout, Scores::column_blocks>;
  auto kept = Asked::Bits::of_words([&](int w) { return load_shared(mask.words + w * mask.stride); });
  // mutate: BitsOfKeysThatDoNotExist
  if (__builtin_expect(place.k + Asked::Bits::columns > context.seqlen_kv, false))
    kept = kept & Asked(place.q, place.k, context).of_existing_keys();
  drop_all_but(scores, 0, kept);
}

/// Sets scores to −inf that the mask drops or whose keys do not exist. The thread's row begins with a multiple of 16 keys.
template <class Scores, class Mask>
JIT_DEVICE void drop_by_sixteen_keys(Scores& scores, const ScorePlace& place, const Mask& mask,
                                     const BlockContext& context) {
  static_assert(is_same<typename Scores::Layout, RowLayout> && Scores::row_blocks == 1, "a thread has a row");
  constexpr int columns = Scores::column_blocks * RowLayout::block_columns, group = 16;
  static_assert(columns <= bits_of_word && columns % group == 0, "a word has a bit for each");
  const int q = minimum(place.q, context.seqlen_q - 1);
  unsigned kept = 0;
#pragma unroll 1
  for (int first = 0; first < columns; first += group) {
    const int k = place.k + first, keys = context.seqlen_kv - k;
    __builtin_assume(k % group == 0);
    unsigned of_group = 0;
#pragma unroll
    for (int i = 0; i < group; ++i) of_group |= static_cast<unsigned>(i < keys && mask.keep(q, k + i)) << i;
    kept |= of_group << first;  // mutate: KeptByTheLastSixteenKeys
  }
  scores.for_each_of_row(
      0, [&](float& score, int column) { score = (kept >> column & 1) != 0 ? score : negative_infinity(); });
}

/// How a kernel evaluates a mask in a partial tile.
enum class MaskQuery {
  /// By row ranges, else by key words in shared memory, else by parts or in a loop: the shortest code.
  shortest,
  /// For each score, unrolled: needs no words of keys, and fewer registers than ranges of rows.
  each_score,
  /// For 16 scores of a row at a time, as bits: they lie in one block of a block mask, which needs registers for one.
  sixteen_keys,
};

/// Sets scores to −inf that the mask drops or whose keys do not exist.
template <MaskQuery query, class Scores, class Mask>
JIT_DEVICE void drop_masked(Scores& scores, const ScorePlace& place, const Mask& mask,
                            const BlockContext& context) {
  if constexpr (has_shared_bits<Mask>) {
    if (mask.words != 0) return drop_by_shared_bits(scores, place, mask, context);
    drop_masked<query>(scores, place, mask.within, context);
  } else if constexpr (query != MaskQuery::shortest && is_positioned<Mask>) {
    drop_by_positions<QueriesByKeys, Mask>(scores, place.q, place.k, context);
  } else if constexpr (query == MaskQuery::sixteen_keys) {
    drop_by_sixteen_keys(scores, place, mask, context);
  } else if constexpr (query == MaskQuery::each_score) {
    const int seqlen_q = context.seqlen_q, seqlen_kv = context.seqlen_kv;
    scores.for_each(place.q, place.k, [&](float& score, int q, int k) {
      if (k >= seqlen_kv || !mask.keep(minimum(q, seqlen_q - 1), k)) score = negative_infinity();
    });
  } else if constexpr (has_row_range<Mask>) {
    drop_outside_row_ranges(scores, place, mask, context.seqlen_q - 1);
  } else if constexpr (key_words<Mask> == 1) {
    drop_by_terms(scores, place, mask, context);
  } else {
    drop_by_bits(scores, place, mask, context);
  }
}

/// Applies the score functor and the mask to products of queries and keys: replaces them by `score` of the product
/// times the softmax scale (identities leave the scale, others their last factor, to softmax: `exponent_scale`), and,
/// if the tile is partial, by −inf where the mask drops them.
template <MaskQuery query, class Scores, class Score, class Mask>
JIT_DEVICE void apply_functors(Scores& scores, const ScorePlace& place, const Score& score,
                               float softmax_scale, const Mask& mask, const BlockContext& context,
                               bool is_partial) {
  if constexpr (is_positioned<Score>) {
    apply_by_positions<QueriesByKeys, Score>(
        scores, place.q, place.k, context,
        [&](float& s, const auto& apply, int, int, int) { s = apply(s * softmax_scale); });
  } else if constexpr (!Score::is_identity) {
    using Factors = ScoreFactors<Score>;
    const float scale = softmax_scale * Factors::input;
    scores.for_each(place.q, place.k, [&](float& s, int q, int k) {
      s = Factors::apply(score, s * scale, minimum(q, context.seqlen_q - 1),
                         minimum(k, context.seqlen_kv - 1));
    });
  }
  if (is_partial) drop_masked<query>(scores, place, mask, context);
}

}  // namespace jit
