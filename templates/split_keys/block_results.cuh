// Merges the partial results of several blocks for a tile of rows into its rows of O and LSE.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/output_functor.cuh"
#include "epilogue/quantized_output.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/warp_layout.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// The position of a piece in a tile of rows: pieces are counted along rows.
template <class Config>
struct PiecePlace {
  static constexpr int of_row = columns_of_result<Config> / piece_columns;
  int row;
  int column;

  JIT_DEVICE explicit PiecePlace(int index) : row(index / of_row), column(index % of_row * piece_columns) {}
};

/// The partial results of a work tile that several blocks share, in the order of keys. Two shared work tiles have at
/// most one block in common: the one in which the first work tile ends and the second begins. So places 2 · (first
/// block) + 1 to 2 · (last block) belong to the work tile: one for each split, and after these enough for groups.
template <class Config>
class BlockResults {
 public:
  JIT_DEVICE BlockResults(const SplitParams& split_params, const SplitInfo& info)
      : rows_(split_params.partial_rows),
        // mutate: PartialResultsOfTwoWorkTilesInOnePlace
        first_(split_params.partials + (2ll * info.first_block + 1) * floats()) {}

  /// Columns of a row that have one copy of its state.
  static constexpr int columns = columns_of_result<Config>;
  static constexpr int column_slice = column_slice_columns(all_blocks_merge<Config>, columns);
  static constexpr int column_slices = column_slices_of_row(all_blocks_merge<Config>, columns);

  /// Address of a row's values from `column` on, or of its state, in a place. The next place is floats() further.
  JIT_DEVICE float* values(int place, int row, int column) const {
    return first_ + place * floats() + row * columns + column;
  }
  JIT_DEVICE float* state(int place, int row, int column) const {
    return first_ + place * floats() + rows_ * columns + 2 * (row * column_slices + column / column_slice);
  }
  JIT_DEVICE int floats() const { return partial_floats(rows_, columns, column_slices); }

  /// Writes a piece; the one with the first column of a column slice leaves the row's state, too.
  JIT_DEVICE void put(int place, int row, int column, const RowPiece& piece) const {
    store_relaxed(reinterpret_cast<float4*>(values(place, row, column)), piece.values);
    if (column % column_slice == 0) put_state(place, row, column, piece.state);
  }
  JIT_DEVICE void put_state(int place, int row, int column, const RowState& value) const {
    store_relaxed(reinterpret_cast<float2*>(state(place, row, column)), make_float2(value.max, value.sum));
  }

 private:
  int rows_;
  float* first_;
};

/// Reads a piece that another block writes; its words may still be empty.
JIT_DEVICE RowPiece load_piece(const float* values, const float* state) {
  const float2 pair = load_relaxed(reinterpret_cast<const float2*>(state));
  return {load_relaxed(reinterpret_cast<const float4*>(values)), {pair.x, pair.y}};
}

/// Partial results that a thread reads at once: of one piece, or of several pieces if results are few.
inline constexpr int most_reads = 16, reads_of_few = 4;

/// Whether a thread has few registers for reads: with tiles of many keys, with warps of few rows, which are many, or
/// with few registers by setmaxnreg.
template <class Config>
JIT_DEVICE constexpr bool has_few_registers() {
  if constexpr (requires { Config::consumer_registers; }) {
    if (Config::consumer_registers != 0 && Config::consumer_registers < 168) return true;
  }
  if constexpr (requires { Config::warp_rows; }) {
    if (Config::warp_rows < rows_per_warp) return true;
  }
  return Config::tile_kv > 64;
}
/// Merges `count` results from place `place` on, in order, for `pieces` pieces from index `first_piece` on, `step`
/// apart, and calls f(row, column, piece) for those in rows below `rows`. Waits for the results, and empties their
/// values. Loads of `reads` results are in flight at once.
template <int pieces, int reads, class Config, class F>
JIT_DEVICE void merge(const BlockResults<Config>& results, int place, int count, int rows, int first_piece,
                      int step, F f) {
  const float none = __uint_as_float(empty_word);
  const int floats = results.floats();
  const int all = rows * PiecePlace<Config>::of_row;
  // After the last piece, or result, one is read again: this takes fewer instructions than a branch.
  const auto place_of = [&](int p) {
    const int index = first_piece + p * step;
    return PiecePlace<Config>(index < all ? index : first_piece);
  };
  RowPiece merged[pieces];
#pragma unroll
  for (RowPiece& piece : merged) piece = piece_without_keys();
#pragma unroll 1
  for (int first = 0; first < count; first += reads) {
    RowPiece read[pieces][reads];
    bool is_waiting = true;
#pragma unroll 1
    while (is_waiting) {
      is_waiting = false;
      int distance = floats;
      asm volatile("" : "+r"(distance));  // keeps the compiler from holding all addresses in registers
#pragma unroll
      for (int p = 0; p < pieces; ++p) {
        const PiecePlace<Config> at = place_of(p);
        const float* values = results.values(place + first, at.row, at.column);
        const float* state = results.state(place + first, at.row, 0);
#pragma unroll
        for (int i = 0; i < reads; ++i) {
          read[p][i] = load_piece(values, state);
          const int next = first + i + 1 < count ? distance : 0;  // mutate: WordsOfTheFirstSplitAlone
          values += next;
          state += next;
        }
      }
#pragma unroll
      for (int i = 0; i < pieces * reads; ++i) is_waiting |= is_missing(read[i / reads][i % reads]);
    }
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
      const PiecePlace<Config> at = place_of(p);
      float* values = results.values(place + first, at.row, at.column);
      float max = merged[p].state.max;
#pragma unroll
      for (int i = 0; i < reads; ++i) {
        max = fmaxf(max, read[p][i].state.max);
        if (first + i < count)
          // mutate: ValuesStay
          store_relaxed(reinterpret_cast<float4*>(values), make_float4(none, none, none, none));
        values += floats;
      }
      relate_to(max, merged[p]);
#pragma unroll
      for (int i = 0; i < reads; ++i)
        add_weighted(merged[p], first + i < count ? weight_of(read[p][i].state, max) : 0, read[p][i]);
    }
  }
#pragma unroll 1
  for (int p = 0; p < pieces; ++p) {  // one copy of f
    const PiecePlace<Config> at(first_piece + p * step);
    if (at.row >= rows) break;
    RowPiece piece = merged[0];
#pragma unroll
    for (int i = 1; i < pieces; ++i) piece = p == i ? merged[i] : piece;
    f(at.row, at.column, piece);
  }
}

/// Prefetches what the output functor will read of a warp's rows, before their keys arrive. Another block may end up
/// using it, which then finds it in the L2 cache.
template <class Config>
JIT_DEVICE void prefetch_numbers(const AttentionParams& params, const SplitInfo& info, int first_row) {
  constexpr int lanes = warp_size / MmaLayout::block_rows;  // of a row
  const int row = info.row_begin + first_row + lane_id() / lanes;
  if (row >= info.q.length * Config::gqa_ratio) return;
  const PackedRow<Config> place(info.kv_head, row);
  const typename Config::OutputFunctor::Rows rows(packed_context<Config>(params, info, place), place.query);
  Config::OutputFunctor::template prefetch_columns<Config::head_dim_v>(rows, lane_id() % lanes, lanes);
}

/// Applies the output functor to a piece of a row, and writes the values before it to o_raw.
template <class Config>
JIT_DEVICE void finish_piece(const AttentionParams& params, const BlockContext& context, int query,
                             int column, float4& values) {
  float own[] = {values.x, values.y, values.z, values.w};
  if constexpr (!quantizes_output<Config>) {
    if (OutputElement<Config>* const raw = raw_row<Config>(params, context, query); raw != nullptr)
      store_piece<Config::alignment>(raw + column, own);
  }
  apply_output<Config>(typename Config::OutputFunctor(context), {context, query}, own, query, column);
  values = make_float4(own[0], own[1], own[2], own[3]);
}

/// Normalizes a piece and hands it over: store(o, values, place). The one with the first column writes LSE, and that behind
/// O's columns the mean of scores.
template <class Config, class Store>
JIT_DEVICE void end_piece(const AttentionParams& params, const SplitInfo& info, int row, int column,
                          const RowPiece& piece, const Store& store) {
  using Element = OutputElement<Config>;
  using Sequences = VariableSequences<Config>;
  const PackedRow<Config> place(info.kv_head, info.row_begin + row);
  const int query = info.q.begin + place.query;
  const RowState state = with_lse_shift<Config>(piece.state, params, info.batch, place.head, query);
  const RowEnd end = row_end<Config>(state, params, place.head);
  if constexpr (has_mean_score<Config>) {
    if (column == Config::head_dim_v) {
      write_packed_mean<Config>(params, info.batch, place.head, query, end, piece.values.x);
      return;
    }
  }
  Element* const o = static_cast<Element*>(params.o) +
                     Sequences::query_offset(params.o_strides, info.batch, place.head, query) + column;
  const auto ended = [&](float value) { return normalized<Config>(value, end.factor); };
  float4 values =
      make_float4(ended(piece.values.x), ended(piece.values.y), ended(piece.values.z), ended(piece.values.w));
  finish_columns<Config>(values, end, params, info, column);
  if constexpr (has_output_functor<Config>)
    finish_piece<Config>(params, packed_context<Config>(params, info, place), place.query, column, values);
  store(o, values, place);
  if (column == 0 && params.lse != nullptr)
    params.lse[Sequences::query_offset(params.lse_strides, info.batch, place.head, query)] = end.lse;
}

/// Writes a piece to O. Not for kernels that compute row scales of O.
template <class Config>
JIT_DEVICE void store_piece(const AttentionParams& params, const SplitInfo& info, int row, int column,
                            const RowPiece& piece) {
  using Element = OutputElement<Config>;
  end_piece<Config>(params, info, row, column, piece,
                    [&](Element* o, const float4& values, const PackedRow<Config>& place) {
                      if constexpr (quantizes_output<Config>) {
                        const BlockContext context = packed_context<Config>(params, info, place);
                        store_quantized_four<Config>(
                            o, values, output_factor<Config>(params, context, place.query, 0, false));
                      } else {
                        store_four<Config::alignment>(o, values);
                      }
                    });
}

/// Writes rows of O with computed scales: a warp has a row, and a lane one piece of it or two, which piece_of(row,
/// column) returns. By a team.
template <class Config, class Team, class PieceOf>
JIT_DEVICE void store_whole_rows(const AttentionParams& params, const SplitInfo& info, const Team& team,
                                 int rows, PieceOf piece_of) {
  using Element = OutputElement<Config>;
  constexpr int columns_at_once = warp_size * piece_columns,
                turns = (columns_of_result<Config> + columns_at_once - 1) / columns_at_once;
#pragma unroll 1
  for (int row = team.thread / warp_size; row < rows; row += Team::threads / warp_size) {
    const PackedRow<Config> place(info.kv_head, info.row_begin + row);
    const BlockContext context = packed_context<Config>(params, info, place);
    Element* const o = static_cast<Element*>(params.o) + place_of_row(context, params.o_strides, place.query);
    float4 values[turns];
    float magnitude = 0;
    const int first = lane_id() * piece_columns;
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int column = first + i * columns_at_once;
      values[i] = make_float4(0, 0, 0, 0);
      if (column < columns_of_result<Config>)
        end_piece<Config>(
            params, info, row, column, piece_of(row, column),
            [&](Element*, const float4& ended, const PackedRow<Config>&) { values[i] = ended; });
      magnitude = fmaxf(magnitude, fmaxf(larger_magnitude(values[i].x, values[i].y),
                                         larger_magnitude(values[i].z, values[i].w)));
    }
    __syncwarp();
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2)
      magnitude =
          fmaxf(magnitude, __shfl_xor_sync(full_warp, magnitude, distance));  // mutate: ScaleOfSomePieces
    const float factor = output_factor<Config>(params, context, place.query, magnitude, lane_id() == 0);
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int column = first + i * columns_at_once;
      if (column < Config::head_dim_v) store_quantized_four<Config>(o + column, values[i], factor);
    }
  }
}

/// Rows of a tile of rows of a split that exist.
template <class Config, int tile_rows>
JIT_DEVICE int rows_of(const SplitInfo& info) {
  return minimum(tile_rows, info.q.length * Config::gqa_ratio - info.row_begin);
}

}  // namespace jit
