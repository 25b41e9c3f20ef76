// Evaluates masks and scores by positions for a warp's product: each lane looks up the positions of some rows and
// columns, and others get them by shuffles, so that the look-up code exists once, not for each score.
#pragma once

#include "base/bit_words.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/positions.cuh"
#include "problem/score_mask.cuh"
#include "problem/scores.cuh"
#include "problem/whole_functor.cuh"
#include "steps/product_axes.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Positions of a product's columns, looked up by a warp together: a word for each 32.
template <class Layout, int count>
class ShuffledColumns {
 public:
  /// `position(i)` is that of column i of the warp's, the lane's first of which is `lane_column`.
  template <class Position>
  JIT_DEVICE ShuffledColumns(int lane_column, const Position& position) : lane_column_(lane_column) {
    const int lane = lane_id();
#pragma unroll
    for (int w = 0; w < words; ++w) words_[w] = position(w * warp_size + lane);
  }
  /// The position of the column `offset` columns after the lane's first one, as layouts count. By a whole warp.
  JIT_DEVICE int at(int offset) const {
    // mutate: PositionsOfOtherLanes
    return __shfl_sync(full_warp, words_[offset / warp_size], lane_column_ + offset % warp_size);
  }

 private:
  static constexpr int words = rounded_up_quotient(count, warp_size);
  int lane_column_;
  int words_[words];
};

template <class Layout>
JIT_DEVICE int lane_column_of() {
  if constexpr (requires { Layout::lane_column(0); }) {
    return Layout::lane_column(lane_id());
  } else {
    return 0;
  }
}

/// Calls f(r, n, i, q, k, query, key) for each value of a lane, the first of which lies at `row` and `column`: its
/// query and key in the kernel's count, and their positions. Rows that do not exist get the position of the last one.
/// By a whole warp.
template <class Axes, class Places, class Product, class F>
JIT_DEVICE void for_each_position(int row, int column, const BlockContext& context, F f) {
  using Layout = typename Product::Layout;
  const Places places(context);
  const auto position = [&](bool is_query, int i) {
    return is_query ? places.query(minimum(i, context.seqlen_q - 1))
                    : places.key(minimum(i, context.seqlen_kv - 1));
  };
  constexpr bool rows_are_queries = is_same<Axes, QueriesByKeys>;
  const int own_row = Layout::own_row(), own_column = lane_column_of<Layout>();
  const ShuffledColumns<Layout, Product::row_blocks * Layout::block_rows> rows(
      own_row, [&](int i) { return position(rows_are_queries, row - own_row + i); });
  const ShuffledColumns<Layout, Product::column_blocks * Layout::block_columns> columns(
      own_column, [&](int i) { return position(!rows_are_queries, column - own_column + i); });
  int row_positions[Product::rows];
#pragma unroll
  for (int r = 0; r < Product::rows; ++r)
    row_positions[r] = rows.at(Layout::row(0, r / Layout::lane_rows, r % Layout::lane_rows));
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::pair; ++i) {
      const int at_column = Layout::column(column, n, i),
                column_position = columns.at(Layout::column(0, n, i));
#pragma unroll
      for (int r = 0; r < Product::rows; ++r) {
        const int at_row = Layout::row(row, r / Layout::lane_rows, r % Layout::lane_rows);
        f(r, n, i, Axes::query(at_row, at_column), Axes::key(at_row, at_column),
          Axes::query(row_positions[r], column_position), Axes::key(row_positions[r], column_position));
      }
    }
  }
}

/// Calls f(score, apply, r, n, i) for each value of a lane, where apply(number) is what a score of positions makes of a
/// number there.
template <class Axes, class Score, class Product, class F>
JIT_DEVICE void apply_by_positions(Product& scores, int row, int column, const BlockContext& context, F f) {
  using Places = typename Whole<Score>::Places;
  const typename Whole<Score>::type score(Places::whole(context));
  for_each_position<Axes, Places, Product>(
      row, column, context, [&](int r, int n, int i, int, int, int query, int key) {
        f(
            scores.at(r, n, i), [&](const auto& number) { return score.apply(number, query, key); }, r, n, i);
      });
}

/// Sets scores to −inf that a mask of positions drops, or whose query or key does not exist.
template <class Axes, class Mask, class Product>
JIT_DEVICE void drop_by_positions(Product& scores, int row, int column, const BlockContext& context) {
  using Places = typename Whole<Mask>::Places;
  const typename Whole<Mask>::type mask(Places::whole(context));
  for_each_position<Axes, Places, Product>(
      row, column, context, [&](int r, int n, int i, int q, int k, int query, int key) {
        if (q >= context.seqlen_q || k >= context.seqlen_kv || !mask.keep(query, key))
          scores.at(r, n, i) = negative_infinity();
      });
}

/// A bit for each value of a lane, in the order of its registers, set if a mask of positions keeps it and its query and
/// key exist. A short loop, for callers with few registers. By a whole warp.
template <class Axes, class Mask, class Product>
JIT_DEVICE unsigned kept_by_positions(int row, int column, const BlockContext& context) {
  using Layout = typename Product::Layout;
  using Places = typename Whole<Mask>::Places;
  constexpr int values = Layout::block_values,
                words = Product::column_blocks * Layout::block_columns / warp_size;
  static_assert(is_same<Layout, MmaLayout> && Product::row_blocks == 1 &&
                Product::column_blocks * values == bits_of_word);
  const Places places(context);
  const typename Whole<Mask>::type mask(Places::whole(context));
  constexpr bool rows_are_queries = is_same<Axes, QueriesByKeys>;
  const auto position = [&](bool is_query, int i) {
    return is_query ? places.query(minimum(i, context.seqlen_q - 1))
                    : places.key(minimum(i, context.seqlen_kv - 1));
  };
  const int own_row = Layout::own_row(), lane_column = Layout::lane_column(lane_id());
  const int of_rows = position(rows_are_queries, row - own_row + lane_id() % Layout::block_rows);
  int row_positions[Layout::lane_rows];
#pragma unroll
  for (int half = 0; half < Layout::lane_rows; ++half)
    row_positions[half] = __shfl_sync(full_warp, of_rows, Layout::row(own_row, 0, half));
  unsigned kept = 0;
#pragma unroll 1
  for (int w = 0; w < words; ++w) {
    const int of_columns = position(!rows_are_queries, column - lane_column + w * warp_size + lane_id());
#pragma unroll 1
    for (int n = 0; n < warp_size / Layout::block_columns; ++n) {
      unsigned of_block = 0;
#pragma unroll
      for (int value = 0; value < values; ++value) {
        const int at_row = Layout::row(row, 0, value / 2),
                  at_column = Layout::column(column + w * warp_size, n, value % 2);
        const int row_position = row_positions[value / 2];
        // mutate: ColumnsOfTheNextBlock
        const int lane = Layout::column(lane_column, n, value % 2);
        const int column_position = __shfl_sync(full_warp, of_columns, lane);
        const bool is_kept =
            Axes::query(at_row, at_column) < context.seqlen_q &&
            Axes::key(at_row, at_column) < context.seqlen_kv &&
            mask.keep(Axes::query(row_position, column_position), Axes::key(row_position, column_position));
        of_block |= static_cast<unsigned>(is_kept) << value;
      }
      kept = kept >> values | of_block << (bits_of_word - values);
    }
  }
  return kept;
}

/// Sets values to −inf whose bits, in the order of registers from bit `first` on, are not set.
template <class Product>
JIT_DEVICE void drop_all_but(Product& scores, unsigned kept, int first = 0) {
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::Layout::block_values; ++i) {
      float& score = scores.registers[0][n][i];
      score =
          (kept >> (first + n * Product::Layout::block_values + i) & 1) != 0 ? score : negative_infinity();
    }
  }
}

}  // namespace jit
