// Pieces of partial results of rows of O, and the merge of results of different keys.
//
// A partial result has, for each row, O not normalized, the maximum m of its scores and the sum l of its exponentials
// relative to m. Results of different keys are merged as in "Flash-Decoding" (Dao et al.): M = max m, O = Σ exp(m − M)
// O, L = Σ exp(m − M) l.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"
#include "steps/softmax.cuh"

namespace jit {

// The epilogue of a row of O: sink, LSE, and corrections for 8-bit keys and values.

/// The state of one row: exponentials are relative to exp(max); `max` is a score, −inf for a row without keys. Scores
/// of functors are kept exactly: as exponents of 2 they would be rounded, and large ones by more than exponentials
/// tolerate.
struct RowState {
  float max;
  float sum;
};

/// The state of a row with maximum `row_max` of raw scores; `scale_log2` turns a raw score into an exponent of 2. `sum`
/// is 0 for a row without keys.
JIT_DEVICE RowState row_state(float row_max, float scale_log2, float sum) {
  return {sum == 0 ? negative_infinity() : finite_or_zero(row_max) * (scale_log2 * ln_2), sum};
}

/// The result of a row.
struct RowEnd {
  float factor;  ///< factor that normalizes O; 0 for a row without keys
  float share;   ///< share of the keys in the sum; a sink has the rest
  float lse;     ///< natural log
};

/// The end of a row of a query head. A head's sink is one more key without a value.
template <class Config>
JIT_DEVICE RowEnd row_end(const RowState& state, const AttentionParams& params, int head) {
  float max = state.max, sum = state.sum, factor = 1;
  if constexpr (Config::sinks) {
    const float sink = params.sequences.sinks[head];
    max = fmaxf(state.max, sink);
    if (max != negative_infinity()) {
      factor = ex2((state.max - max) * log2_e);
      sum = __fmaf_rn(factor, state.sum, ex2((sink - max) * log2_e));
    }
  }
  if (sum == 0) return {0, 0, negative_infinity()};
  const float inverse = factor * rcp(sum);
  return {inverse, Config::sinks ? inverse * state.sum : 1, __fmaf_rn(lg2(sum), ln_2, max)};
}

/// Σ P · score of a row, where `weighted` is the sum of exponents relative to its maximum, each times its exponential.
JIT_DEVICE float sum_of_scores(const RowState& state, float weighted) {
  return state.sum == 0 ? 0 : __fmaf_rn(state.max, state.sum, weighted * ln_2);  // mutate: ScoresOfExponents
}
/// Writes the mean of a row whose scores, times their probabilities before these are normalized, have this sum.
template <class Config>
JIT_DEVICE void write_packed_mean(const AttentionParams& params, int batch, int head, int query,
                                  const RowEnd& end, float sum) {
  const OutputParams& outputs = params.outputs;
  outputs
      .mean_score[VariableSequences<Config>::query_offset(outputs.mean_score_strides, batch, head, query)] =
      end.factor * sum;
}

/// The state of a row after the LSE shift, which restores the subtracted mean of keys. Called before sinks are added.
template <class Config>
JIT_DEVICE RowState with_lse_shift(const RowState& state, const AttentionParams& params, int batch, int head,
                                   int query) {
  if constexpr (!has_lse_shifts<Config>) return state;
  const DescaleParams& descale = params.descale;
  const float shift =
      descale
          .lse_shift[VariableSequences<Config>::query_offset(descale.lse_shift_strides, batch, head, query)];
  // mutate: ShiftOfScaledExponents
  return {__fmaf_rn(params.softmax_scale, shift, state.max), state.sum};  // −inf stays
}

/// Finishes four normalized values of a row from `column` on: multiplies by column scales, and adds the subtracted mean
/// of values (steps/value_columns.cuh). A row without keys stays 0.
template <class Config>
JIT_DEVICE void finish_columns(float4& values, const RowEnd& end, const AttentionParams& params,
                               const SplitInfo& info, int column) {
  if constexpr (!finishes_columns<Config>) return;
  const DescaleParams& descale = params.descale;
  if (end.factor == 0) return;
  const auto of_column = [&](const float* of_all, const TensorStrides& strides, int i) {
    // mutate: ColumnsOfTheFirstHead
    return of_all[info.batch * strides.batch + info.kv_head * strides.head + column + i];
  };
  const auto finish = [&](float& x, int i) {
    if constexpr (has_channel_scales<Config>) x *= of_column(descale.v, descale.v_strides, i);
    if constexpr (has_value_means<Config>)
      x = __fmaf_rn(of_column(descale.v_mean, descale.v_mean_strides, i), end.share, x);
  };
  finish(values.x, 0);
  finish(values.y, 1);
  finish(values.z, 2);
  finish(values.w, 3);  // mutate: NoMeanOfAColumn
}

/// Four neighboring values of a row of O, and the row's state.
struct RowPiece {
  float4 values;
  RowState state;
};

// mutate: WaitsForNoWord
JIT_DEVICE bool is_empty(unsigned word) { return word == empty_word; }

/// Whether a word of the piece is empty.
JIT_DEVICE bool is_missing(const RowPiece& piece) {
  const unsigned words[] = {__float_as_uint(piece.values.x),  __float_as_uint(piece.values.y),
                            __float_as_uint(piece.values.z),  __float_as_uint(piece.values.w),
                            __float_as_uint(piece.state.max), __float_as_uint(piece.state.sum)};
  unsigned most = 0;
#pragma unroll
  for (const unsigned word : words) most = maximum(most, word);
  return is_empty(most);  // mutate: WaitsForNothing
}

/// The result of a row without keys.
JIT_DEVICE RowPiece piece_without_keys() { return {make_float4(0, 0, 0, 0), {negative_infinity(), 0}}; }

/// Adds `weight` times the values, unless it is 0: 0 · NaN would be NaN.
JIT_DEVICE void add_weighted(float4& sum, float weight, const float4& values) {
  const bool counts = weight != 0;
  sum.x = counts ? __fmaf_rn(weight, values.x, sum.x) : sum.x;
  sum.y = counts ? __fmaf_rn(weight, values.y, sum.y) : sum.y;
  sum.z = counts ? __fmaf_rn(weight, values.z, sum.z) : sum.z;
  sum.w = counts ? __fmaf_rn(weight, values.w, sum.w) : sum.w;
}

/// The weight of a result relative to the maximum `max`.
JIT_DEVICE float weight_of(const RowState& state, float max) {
  return ex2(state.max == negative_infinity() ? state.max : (state.max - max) * log2_e);
}

/// Relates a sum of results to the maximum `max`, and adds `weight` times a result to it.
JIT_DEVICE void relate_to(float max, RowPiece& sum) {
  const float earlier = weight_of(sum.state, max);
  sum = {make_float4(earlier * sum.values.x, earlier * sum.values.y, earlier * sum.values.z,
                     earlier * sum.values.w),
         {max, earlier * sum.state.sum}};
}
JIT_DEVICE void add_weighted(RowPiece& sum, float weight, const RowPiece& piece) {
  sum.state.sum = __fmaf_rn(weight, piece.state.sum, sum.state.sum);
  add_weighted(sum.values, weight, piece.values);
}

/// The weights of two results that are joined, the left one of earlier keys.
struct JoinWeights {
  float left;
  float right;

  /// The weighted sum of two values; exactly one of them if the other result has no keys.
  JIT_DEVICE float sum(float x, float y) const {
    const float both = __fmaf_rn(right, y, __fmul_rn(left, x));
    const float sum = left == 0 ? y : both;
    return right == 0 ? x : sum;
  }
};

/// The weights of a result and a later one; `state`, that of the later one, becomes the state of both.
JIT_DEVICE JoinWeights join_states(const RowState& left, RowState& state) {
  const float max = fmaxf(left.max, state.max);
  const JoinWeights weights{weight_of(left, max), weight_of(state, max)};
  state = {max, weights.sum(left.sum, state.sum)};
  return weights;
}

JIT_DEVICE RowPiece join(const RowPiece& left, const RowPiece& right) {
  RowPiece both = right;
  const JoinWeights weights = join_states(left.state, both.state);
  both.values.x = weights.sum(left.values.x, right.values.x);
  both.values.y = weights.sum(left.values.y, right.values.y);
  both.values.z = weights.sum(left.values.z, right.values.z);
  both.values.w = weights.sum(left.values.w, right.values.w);
  return both;
}

}  // namespace jit
