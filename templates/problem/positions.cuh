// Positions of queries and keys of a call in the whole sequence, of which the call has a part: tables define them,
// piece by piece. Masks and scores get positions and whole lengths, while kernels count their own rows.
//
//     piece {row, position, run, stride}: row r has position + i / run · stride + i % run, i = r − row
//
// A piece ends where the next one begins. Positions ascend with rows, so that the rows of a range of positions are a
// range. Tables may hold any numbers: positions are clamped to the length of the whole, and that to the sizes of
// tensors.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"

namespace jit {

/// Whether tables define the positions of a Config's rows.
template <class Config>
concept has_positions = requires {
  typename Config::Places;
};

/// Rows with consecutive positions: row r has position r + shift.
struct PositionRun {
  int begin = 0;
  int end = 0;
  int shift = 0;

  JIT_DEVICE bool has(int row) const { return row >= begin && row < end; }
};

/// The positions of a batch entry's rows, from an int32 tensor (batch, pieces, 4) in slot `slot`. It reads what it
/// needs again on each call, since producers have no registers to hold it.
template <int slot>
struct TablePositions {
  const FunctorTensor* tensors;
  int batch;
  int rows;  ///< of the entry

  JIT_DEVICE TablePositions(const BlockContext& context, int own_rows)
      : tensors(context.tensors), batch(context.batch), rows(own_rows) {}

  /// The stretch that holds a row.
  JIT_DEVICE PositionRun stretch_of(int row) const {
    int i = 0;
#pragma unroll 1
    for (int end = count(); end - i > 1;) {
      const int middle = (i + end) / 2;
      (__ldg(word(middle)) <= row ? i : end) = middle;
    }
    const int4 piece = load(i);
    PositionRun stretch{piece.x, row_behind(i, 0x7fffffff), difference(piece.y, piece.x)};
    if (piece.z != piece.w) {
      const unsigned run = run_of(piece), before = row > piece.x ? difference(row, piece.x) : 0u;
      const unsigned first = before - before % run;
      stretch.begin += static_cast<int>(first);
      stretch.end = minimum(stretch.end, static_cast<int>(minimum(stretch.begin + run, 0x7fffffffu)));
      // mutate: StridesAreForgotten
      stretch.shift += static_cast<int>(first / run * (stride_of(piece) - run));
    }
    return stretch;
  }

  /// Rows before a position.
  JIT_DEVICE int rows_before(int position) const {
    if (position <= 0) return 0;
    int i = 0;
#pragma unroll 1
    for (int end = count(); end - i > 1;) {
      const int middle = (i + end) / 2;
      const int2 piece = __ldg(reinterpret_cast<const int2*>(word(middle)));
      (piece.x < rows && piece.y < position ? i : end) = middle;
    }
    const int4 piece = load(i);
    unsigned further = position > piece.y ? difference(position, piece.y) : 0u;
    if (piece.z != piece.w) {
      const unsigned run = run_of(piece), stride = stride_of(piece), runs = further / stride;
      further = runs * run + minimum(further - runs * stride, run);  // mutate: RowsBeforeByStrides
    }
    const unsigned all = static_cast<unsigned>(rows);
    const unsigned row = static_cast<unsigned>(maximum(0, minimum(piece.x, rows))) + minimum(further, all);
    return maximum(0, minimum(static_cast<int>(minimum(row, all)), row_behind(i, rows)));
  }

 private:
  JIT_DEVICE int count() const { return tensors[slot].rows; }
  JIT_DEVICE const int* word(int i) const {
    // mutate: PositionsOfTheFirstEntry
    return static_cast<const int*>(tensors[slot].data) + (batch * tensors[slot].strides[0] + i * 4);
  }
  JIT_DEVICE int4 load(int i) const { return __ldg(reinterpret_cast<const int4*>(word(i))); }
  // The start of the piece after the i-th one.
  JIT_DEVICE int row_behind(int i, int otherwise) const {
    return i + 1 < count() ? __ldg(word(i + 1)) : otherwise;
  }
  static JIT_DEVICE unsigned difference(int a, int b) {
    return static_cast<unsigned>(a) - static_cast<unsigned>(b);
  }
  static JIT_DEVICE unsigned run_of(const int4& piece) { return static_cast<unsigned>(maximum(piece.z, 1)); }
  static JIT_DEVICE unsigned stride_of(const int4& piece) {
    return maximum(static_cast<unsigned>(maximum(piece.w, 1)), run_of(piece));
  }
};

/// Rows whose position is their index.
struct OwnPositions {
  int rows;

  JIT_DEVICE OwnPositions(const BlockContext&, int own_rows) : rows(own_rows) {}
  JIT_DEVICE PositionRun stretch_of(int) const { return {0, 0x7fffffff, 0}; }
  JIT_DEVICE int rows_before(int position) const { return maximum(0, minimum(position, rows)); }
};

inline constexpr int no_table = -1;

/// The last used stretches of a query and a key; adjacent rows then cost one addition each.
struct LastStretches {
  PositionRun q, k;
};

/// Positions of queries and keys of a batch entry. Slots hold their tables, and the whole lengths, int32 (batch, 2).
template <int slot_q, int slot_k, int slot_lengths>
struct Positions {
  template <int slot>
  using Side = typename ChosenType<slot == no_table, OwnPositions, TablePositions<slot>>::type;

  int length_q;  ///< of the whole
  int length_kv;
  Side<slot_q> q;
  Side<slot_k> k;

  JIT_DEVICE explicit Positions(const BlockContext& context) : Positions(context, whole(context)) {}

  /// The context of functors of the whole.
  static JIT_DEVICE BlockContext whole(const BlockContext& context) {
    const FunctorTensor& lengths = context.tensors[slot_lengths];
    const int* const of_entry = static_cast<const int*>(lengths.data) + context.batch * lengths.strides[0];
    BlockContext result = context;
    // `last_size` and `rows` hold the sizes of tensors. At least 1, for rows that are clamped to the last one.
    result.seqlen_q = maximum(1, minimum(__ldg(of_entry), lengths.last_size));
    result.seqlen_kv = maximum(1, minimum(__ldg(of_entry + 1), lengths.rows));
    return result;
  }

  JIT_DEVICE int query(int row) const { return cut(row + q.stretch_of(row).shift, length_q); }
  JIT_DEVICE int key(int row) const { return cut(row + k.stretch_of(row).shift, length_kv); }
  JIT_DEVICE int query(int row, LastStretches& last) const { return cut(near(q, row, last.q), length_q); }
  JIT_DEVICE int key(int row, LastStretches& last) const { return cut(near(k, row, last.k), length_kv); }

  /// The smallest ranges of positions that contain those of rows [begin, end), which is not empty.
  JIT_DEVICE KeyRange queries(int begin, int end) const { return {query(begin), query(end - 1) + 1}; }
  // mutate: HullOfKeys
  JIT_DEVICE KeyRange keys(int begin, int end) const { return {key(begin), key(end - 1) + 1}; }

  JIT_DEVICE KeyRange keys(int begin, int end, LastStretches& last) const {
    const int first = key(begin, last);
    return {first, key(end - 1, last) + 1};  // mutate: HullOfNearKeys
  }

  /// The keys with positions in a range.
  JIT_DEVICE KeyRange own_keys(const KeyRange& range) const {
    return {k.rows_before(range.begin), k.rows_before(range.end)};
  }

 private:
  JIT_DEVICE Positions(const BlockContext& context, const BlockContext& whole)
      : length_q(whole.seqlen_q),
        length_kv(whole.seqlen_kv),
        q(context, context.seqlen_q),
        k(context, context.seqlen_kv) {}

  template <class Rows>
  static JIT_DEVICE int near(const Rows& rows, int row, PositionRun& last) {
    if constexpr (is_same<Rows, OwnPositions>) return row;
    if (__builtin_expect(!last.has(row), false)) last = rows.stretch_of(row);
    return row + last.shift;
  }
  // Clamps to [0, length) by one unsigned comparison; negative positions become the last one.
  static JIT_DEVICE int cut(int position, int length) {
    return static_cast<int>(minimum(static_cast<unsigned>(position), static_cast<unsigned>(length - 1)));
  }
};

/// Whether a mask's `keeps` depends on its words alone.
template <class Mask>
concept keeps_by_words = Mask::keeps_by_words;

/// A mask of the whole sequence, evaluated for rows. It forwards all of the mask except parts and memory, which need
/// tiles with consecutive positions.
template <class Mask, class Places>
struct PositionedMask {
  Places places;
  Mask mask;
  mutable LastStretches last;
  __device__ explicit PositionedMask(const BlockContext& context)
      : places(context), mask(Places::whole(context)) {}

  static constexpr bool needs_warp = jit::needs_warp<Mask>;
  static constexpr bool reads_head = jit::depends_on_head<Mask>;
  static constexpr bool is_long = jit::is_long<Mask>;
  static constexpr bool rows_begin_first = jit::rows_begin_first<Mask>;
  static constexpr int key_words = jit::key_words<Mask>;
  __device__ bool differs_by_head() const { return heads_differ(mask); }

  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end || places.k.rows == 0) return {0, 0};
    const KeyRange queries = places.queries(q_begin, q_end);
    return places.own_keys(mask.key_range(queries.begin, queries.end));
  }
  __device__ KeyRange lane_key_range(int, int q_begin, int q_end) const {
    if (q_begin >= q_end || places.k.rows == 0) return {0, 0};
    const KeyRange queries = places.queries(q_begin, q_end);
    return places.own_keys(jit::lane_key_range(mask, places.length_kv, queries.begin, queries.end));
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    const KeyRange queries = places.queries(tile.q_begin, tile.q_end),
                   keys = places.keys(tile.k_begin, tile.k_end);
    return mask.classify({queries.begin, queries.end, keys.begin, keys.end});
  }
  __device__ bool keep(int q, int k) const {
    return mask.keep(places.query(q, last), places.key(k, last));  // mutate: MaskOfRows
  }
  __device__ KeyRange row_range(int q) const requires has_row_range<Mask> {
    return places.own_keys(mask.row_range(places.query(q)));  // mutate: RangesOfRows
  }

  __device__ int next_key(int q_begin, int q_end, int k) const requires has_next<Mask> {
    const KeyRange queries = places.queries(q_begin, q_end);
    return maximum(k, places.k.rows_before(mask.next_key(queries.begin, queries.end, places.key(k))));
  }
  __device__ int next_query(int k_begin, int k_end, int q) const requires has_next<Mask> {
    const KeyRange keys = places.keys(k_begin, k_end);
    return maximum(q, places.q.rows_before(mask.next_query(keys.begin, keys.end, places.query(q))));
  }
  __device__ void touch(int q_begin, int q_end) const requires touches_queries<Mask> {
    const KeyRange queries = places.queries(q_begin, q_end);
    mask.touch(queries.begin, queries.end);
  }

  __device__ int key_word(int k) const requires(jit::key_words<Mask> == 1) {
    return mask.key_word(places.key(k));
  }
  __device__ auto query_term(int q) const requires(jit::key_words<Mask> < 2 && !has_row_range<Mask>) {
    return jit::query_term(mask, places.query(q, last));
  }
  template <class QueryTerm>
  __device__ bool keeps(const QueryTerm& query, int k, int key_word) const
      requires(jit::key_words<Mask> < 2 && !has_row_range<Mask>) {
    if constexpr (keeps_by_words<Mask>) return mask.keeps(query, k, key_word);
    return jit::keeps(mask, query, places.key(k, last), key_word);
  }
};

/// A score of the whole sequence, evaluated for rows.
template <class Score, class Places>
struct PositionedScore {
  static constexpr bool is_identity = Score::is_identity;
  Places places;
  Score score;
  mutable LastStretches last;
  __device__ explicit PositionedScore(const BlockContext& context)
      : places(context), score(Places::whole(context)) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number value, int q, int k, Reads&... reads) const {
    return score.apply(value, places.query(q, last), places.key(k, last), reads...);  // mutate: ScoresOfRows
  }
};

template <class Score, class Places>
inline constexpr float largest_score<PositionedScore<Score, Places>> = largest_score<Score>;
template <class Score, class Places>
inline constexpr bool may_drop_keys<PositionedScore<Score, Places>> = may_drop_keys<Score>;

}  // namespace jit
