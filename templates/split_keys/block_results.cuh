// From what blocks have come to for a tile of rows to its rows of O and LSE.
//
// A result of some keys is, for each row, O not normalised, the maximum m of its exponents of 2 and the sum l of its
// exponentials relative to m. Results of different keys are merged as "Flash-Decoding" (Dao et al.) does:
// M = max m, O = Σ 2^(m − M) O, L = Σ 2^(m − M) l.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/row_end.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/warp_layout.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Four neighbouring values of a row of O, and the row's state.
struct RowPiece {
  float4 values;
  RowState state;
};

/// Where a piece lies in a tile of rows: pieces count along rows.
template <class Config>
struct PiecePlace {
  static constexpr int of_row = Config::head_dim_v / piece_columns;
  int row;
  int column;

  __device__ __forceinline__ explicit PiecePlace(int index)
      : row(index / of_row), column(index % of_row * piece_columns) {}
};

/// The partial results of a unit that several blocks share, side by side in the order of keys. Two units that are shared
/// have no block in common but one: where the first unit ends and the second begins. So the places from
/// 2 · (first block) + 1 to 2 · (last block) are the unit's own, and no more than that are its parts.
template <class Config>
class BlockResults {
 public:
  __device__ __forceinline__ BlockResults(const SplitParams& split, const PartNote& note)
      : rows_(split.partial_rows), first_(split.partials + (2ll * note.first_block + 1) * floats()) {}

  /// Where a place has a row's values from a column on, and its state beside them. Those of the next place lie floats()
  /// behind.
  __device__ __forceinline__ float* values(int place, int row, int column) const {
    return first_ + place * floats() + row * Config::head_dim_v + column;
  }
  __device__ __forceinline__ float* state(int place, int row, int column) const {
    constexpr int strips = strips_of_row(Config::head_dim_v);
    return first_ + place * floats() + rows_ * Config::head_dim_v +
           2 * (row * strips + column / strip_columns);
  }
  __device__ __forceinline__ int floats() const { return partial_floats(rows_, Config::head_dim_v); }

  /// Leaves a piece; the one with the first column of a strip leaves the row's state, too.
  __device__ __forceinline__ void put(int place, int row, int column, const RowPiece& piece) const {
    store_relaxed(reinterpret_cast<float4*>(values(place, row, column)), piece.values);
    if (column % strip_columns == 0) put_state(place, row, column, piece.state);
  }
  __device__ __forceinline__ void put_state(int place, int row, int column, const RowState& value) const {
    store_relaxed(reinterpret_cast<float2*>(state(place, row, column)), make_float2(value.max, value.sum));
  }

 private:
  int rows_;
  float* first_;
};

/// Adds `weight` times the values, unless it is 0: 0 · v is not 0 where v is not a number.
__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& values) {
  const bool counts = weight != 0;
  sum.x = counts ? __fmaf_rn(weight, values.x, sum.x) : sum.x;
  sum.y = counts ? __fmaf_rn(weight, values.y, sum.y) : sum.y;
  sum.z = counts ? __fmaf_rn(weight, values.z, sum.z) : sum.z;
  sum.w = counts ? __fmaf_rn(weight, values.w, sum.w) : sum.w;
}

/// How much a result counts beside one whose maximum is `max`.
__device__ __forceinline__ float weight_of(const RowState& state, float max) {
  return ex2(state.max == negative_infinity() ? state.max : state.max - max);
}

/// How much two results count, of which one stands behind the other.
struct JoinWeights {
  float left;
  float right;

  /// The sum of two values; exactly one of them where the other one's result has no keys.
  __device__ __forceinline__ float sum(float x, float y) const {
    const float both = __fmaf_rn(right, y, __fmul_rn(left, x));
    const float sum = left == 0 ? y : both;
    return right == 0 ? x : sum;
  }
};

/// Of a result and one behind it: their weights; `state` becomes that of both.
__device__ __forceinline__ JoinWeights join_states(const RowState& left, RowState& state) {
  const float max = fmaxf(left.max, state.max);
  const JoinWeights weights{weight_of(left, max), weight_of(state, max)};
  state = {max, weights.sum(left.sum, state.sum)};
  return weights;
}

__device__ __forceinline__ RowPiece join(const RowPiece& left, const RowPiece& right) {
  RowPiece both = right;
  const JoinWeights weights = join_states(left.state, both.state);
  both.values.x = weights.sum(left.values.x, right.values.x);
  both.values.y = weights.sum(left.values.y, right.values.y);
  both.values.z = weights.sum(left.values.z, right.values.z);
  both.values.w = weights.sum(left.values.w, right.values.w);
  return both;
}

/// Normalises a piece and writes it to O; the one with the first column writes LSE.
template <class Config>
__device__ __forceinline__ void store_piece(const AttentionParams& params, const DescaleParams& descale,
                                            const PartNote& note, int row, int column,
                                            const RowPiece& piece) {
  using Element = OutputElement<Config>;
  using Sequences = VariableSequences<Config>;
  const PackedRow<Config> place(note.kv_head, note.row_begin + row);
  const int query = note.q_begin + place.query;
  const RowState state = with_lse_shift<Config>(piece.state, params, descale, note.batch, place.head, query);
  const RowEnd end = row_end<Config>(state, params, place.head);
  Element* const o = static_cast<Element*>(params.o) +
                     Sequences::query_offset(params.o_strides, note.batch, place.head, query) + column;
  float4 values = make_float4(piece.values.x * end.factor, piece.values.y * end.factor,
                              piece.values.z * end.factor, piece.values.w * end.factor);
  finish_columns<Config>(values, end, descale, note, column);
  store_four<Config::alignment>(o, values);
  if (column == 0 && params.lse != nullptr)
    params.lse[Sequences::query_offset(params.lse_strides, note.batch, place.head, query)] = end.lse;
}

/// Rows of a tile of rows of a part that exist.
template <class Config, int tile_rows>
__device__ __forceinline__ int rows_of(const PartNote& note) {
  return minimum(tile_rows, note.seqlen_q * Config::gqa_ratio - note.row_begin);
}

}  // namespace jit
