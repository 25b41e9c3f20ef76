// Where queries and keys stand in the whole of a sequence of which a call has a part: tables say it, piece by piece.
// Masks and scores are asked of positions and of whole lengths, and kernels go on counting their own rows.
//
//     piece {row, position, run, stride}: row r stands at position + i / run · stride + i % run, i = r − row
//
// A piece ends where the next one begins. Positions ascend with rows, so that the rows of a range of positions are a
// range. Tables may hold any numbers: none is used as a place before it was cut to the length of the whole, and that to
// what there are tensors for.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"

namespace jit {

/// Rows that stand one behind another: row r at r + shift.
struct Stretch {
  int begin;
  int end;
  int shift;
};

/// The positions of the rows of a batch entry, int32 tensor (batch, pieces, 4) in slot `slot`.
template <int slot>
class TablePositions {
 public:
  /// `rows` are its own, `positions` those of the whole sequence.
  JIT_DEVICE TablePositions(const BlockContext& context, int rows, int positions)
      : last_(maximum(positions - 1, 0)), rows_(rows) {
    const FunctorTensor& table = context.tensors[slot];
    // mutate: PositionsOfTheFirstEntry
    pieces_ = static_cast<const int4*>(table.data) + context.batch * (table.strides[0] / 4);
    count_ = table.rows;
  }

  /// The position of a row. Rows of the stretch that was asked for last cost an addition.
  JIT_DEVICE int at(int row) const {
    if (__builtin_expect(row < stretch_.begin || row >= stretch_.end, false)) stretch_ = stretch_of(row);
    return cut(row + stretch_.shift);  // mutate: PositionsAreNotCut
  }

  /// Rows before a position.
  JIT_DEVICE int rows_before(int position) const {
    if (position <= 0) return 0;
    int i = 0;
#pragma unroll 1
    for (int end = count_; end - i > 1;) {
      const int middle = (i + end) / 2;
      const int4 piece = load(middle);
      (piece.x < rows_ && piece.y < position ? i : end) = middle;
    }
    const int4 piece = load(i);
    const int next = i + 1 < count_ ? load(i + 1).x : rows_;
    unsigned further =
        position > piece.y ? static_cast<unsigned>(position) - static_cast<unsigned>(piece.y) : 0u;
    if (piece.z != piece.w) {
      const unsigned run = run_of(piece), stride = stride_of(piece), runs = further / stride;
      further = runs * run + minimum(further - runs * stride, run);  // mutate: RowsBeforeByStrides
    }
    const unsigned rows = static_cast<unsigned>(rows_);
    const unsigned row = static_cast<unsigned>(maximum(0, minimum(piece.x, rows_))) + minimum(further, rows);
    return maximum(0, minimum(static_cast<int>(minimum(row, rows)), next));
  }

 private:
  JIT_DEVICE int4 load(int i) const { return __ldg(pieces_ + i); }
  static JIT_DEVICE unsigned run_of(const int4& piece) { return static_cast<unsigned>(maximum(piece.z, 1)); }
  static JIT_DEVICE unsigned stride_of(const int4& piece) {
    return maximum(static_cast<unsigned>(maximum(piece.w, 1)), run_of(piece));
  }
  // One comparison for both ends.
  JIT_DEVICE int cut(int position) const {
    return static_cast<int>(minimum(static_cast<unsigned>(position), static_cast<unsigned>(last_)));
  }

  JIT_DEVICE Stretch stretch_of(int row) const {
    int i = 0;
#pragma unroll 1
    for (int end = count_; end - i > 1;) {
      const int middle = (i + end) / 2;
      (load(middle).x <= row ? i : end) = middle;
    }
    const int4 piece = load(i);
    Stretch stretch{piece.x, i + 1 < count_ ? load(i + 1).x : 0x7fffffff,
                    static_cast<int>(static_cast<unsigned>(piece.y) - static_cast<unsigned>(piece.x))};
    if (piece.z != piece.w) {
      const unsigned run = run_of(piece);
      const unsigned before = row > piece.x ? static_cast<unsigned>(row) - static_cast<unsigned>(piece.x) : 0u;
      const unsigned first = before - before % run;
      stretch.begin += static_cast<int>(first);
      stretch.end = minimum(stretch.end, static_cast<int>(minimum(stretch.begin + run, 0x7fffffffu)));
      // mutate: StridesAreForgotten
      stretch.shift += static_cast<int>(first / run * (stride_of(piece) - run));
    }
    return stretch;
  }

  const int4* pieces_;
  int count_;
  int last_;
  int rows_;
  mutable Stretch stretch_{0, 0, 0};
};

/// Rows that stand where they are counted.
class OwnPositions {
 public:
  JIT_DEVICE OwnPositions(const BlockContext&, int rows, int positions)
      : last_(maximum(positions - 1, 0)), rows_(rows) {}
  JIT_DEVICE int at(int row) const { return minimum(row, last_); }
  JIT_DEVICE int rows_before(int position) const { return maximum(0, minimum(position, rows_)); }

 private:
  int last_;
  int rows_;
};

inline constexpr int no_table = -1;

/// Both sides of a batch entry. Slots are those of their tables, and of the whole lengths, int32 (batch, 2).
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
    // The host leaves there how many queries and keys tensors have.
    result.seqlen_q = maximum(0, minimum(__ldg(of_entry), lengths.last_size));
    result.seqlen_kv = maximum(0, minimum(__ldg(of_entry + 1), lengths.rows));
    return result;
  }

  JIT_DEVICE bool has_scores() const { return length_q > 0 && length_kv > 0; }

  /// The smallest range of positions around those of rows from `begin` to before `end`, of which there are some.
  template <class Rows>
  static JIT_DEVICE KeyRange hull(const Rows& rows, int begin, int end) {
    return {rows.at(begin), rows.at(end - 1) + 1};  // mutate: HullOfTheFirstRow
  }
  JIT_DEVICE ScoreTile hull(const ScoreTile& tile) const {
    const KeyRange queries = hull(q, tile.q_begin, tile.q_end), keys = hull(k, tile.k_begin, tile.k_end);
    return {queries.begin, queries.end, keys.begin, keys.end};
  }

  /// The keys that stand in a range.
  JIT_DEVICE KeyRange own_keys(const KeyRange& range) const {
    return {k.rows_before(range.begin), k.rows_before(range.end)};
  }

 private:
  JIT_DEVICE Positions(const BlockContext& context, const BlockContext& whole)
      : length_q(whole.seqlen_q),
        length_kv(whole.seqlen_kv),
        q(context, context.seqlen_q, whole.seqlen_q),
        k(context, context.seqlen_kv, whole.seqlen_kv) {}
};

/// A mask of the whole, which is asked of rows. It has what the mask has but parts and memory: those are of tiles
/// whose rows stand side by side.
template <class Mask, class Places>
struct PositionedMask {
  Places places;
  Mask mask;
  __device__ explicit PositionedMask(const BlockContext& context)
      : places(context), mask(Places::whole(context)) {}

  static constexpr bool needs_warp = jit::needs_warp<Mask>;
  static constexpr bool reads_head = jit::depends_on_head<Mask>;
  static constexpr bool is_long = jit::is_long<Mask>;
  static constexpr bool rows_begin_first = jit::rows_begin_first<Mask>;
  static constexpr int key_words = jit::key_words<Mask>;
  __device__ bool differs_by_head() const { return heads_differ(mask); }

  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end || !places.has_scores()) return {0, 0};
    const KeyRange queries = places.hull(places.q, q_begin, q_end);
    return places.own_keys(mask.key_range(queries.begin, queries.end));
  }
  __device__ KeyRange lane_key_range(int, int q_begin, int q_end) const {
    if (q_begin >= q_end || !places.has_scores()) return {0, 0};
    const KeyRange queries = places.hull(places.q, q_begin, q_end);
    return places.own_keys(jit::lane_key_range(mask, places.length_kv, queries.begin, queries.end));
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    if (!places.has_scores()) return TileClass::empty;
    return mask.classify(places.hull(tile));  // mutate: ClassesOfRows
  }
  __device__ bool keep(int q, int k) const {
    return places.has_scores() && mask.keep(places.q.at(q), places.k.at(k));  // mutate: MaskOfRows
  }
  __device__ KeyRange row_range(int q) const requires has_row_range<Mask> {
    if (!places.has_scores()) return {0, 0};
    return places.own_keys(mask.row_range(places.q.at(q)));
  }

  __device__ int next_key(int q_begin, int q_end, int k) const requires has_next<Mask> {
    if (!places.has_scores()) return k;
    const KeyRange queries = places.hull(places.q, q_begin, q_end);
    return maximum(k, places.k.rows_before(mask.next_key(queries.begin, queries.end, places.k.at(k))));
  }
  __device__ int next_query(int k_begin, int k_end, int q) const requires has_next<Mask> {
    if (!places.has_scores()) return q;
    const KeyRange keys = places.hull(places.k, k_begin, k_end);
    return maximum(q, places.q.rows_before(mask.next_query(keys.begin, keys.end, places.q.at(q))));
  }
  __device__ void touch(int q_begin, int q_end) const requires touches_queries<Mask> {
    if (!places.has_scores()) return;
    const KeyRange queries = places.hull(places.q, q_begin, q_end);
    mask.touch(queries.begin, queries.end);
  }

  __device__ int key_word(int k) const requires(jit::key_words<Mask> == 1) {
    return places.has_scores() ? mask.key_word(places.k.at(k)) : 0;
  }
  __device__ auto query_term(int q) const requires(jit::key_words<Mask> < 2 && !has_row_range<Mask>) {
    return jit::query_term(mask, places.q.at(q));
  }
  template <class QueryTerm>
  __device__ bool keeps(const QueryTerm& query, int k, int key_word) const
      requires(jit::key_words<Mask> < 2 && !has_row_range<Mask>) {
    return jit::keeps(mask, query, places.k.at(k), key_word);
  }
};

/// A score of the whole, which is asked of rows.
template <class Score, class Places>
struct PositionedScore {
  static constexpr bool is_identity = Score::is_identity;
  Places places;
  Score score;
  __device__ explicit PositionedScore(const BlockContext& context)
      : places(context), score(Places::whole(context)) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number value, int q, int k, Reads&... reads) const {
    return score.apply(value, places.q.at(q), places.k.at(k), reads...);  // mutate: ScoresOfRows
  }
};

template <class Score, class Places>
inline constexpr float largest_score<PositionedScore<Score, Places>> = largest_score<Score>;
template <class Score, class Places>
inline constexpr bool may_drop_keys<PositionedScore<Score, Places>> = may_drop_keys<Score>;

}  // namespace jit
