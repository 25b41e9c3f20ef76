// How a row of O ends: its sum with that of a sink, its LSE, and what values and keys of 8 bits have lost on the way.
#pragma once

#include "base/descale_params.cuh"
#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "split_keys/split_info.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// Of one row: exponentials are relative to that of `max`, a score, which is −inf for a row without keys. Scores that
/// functors made are exact: as exponents of 2 they would be rounded, and large ones by more than exponentials can bridge.
struct RowState {
  float max;
  float sum;
};

/// That of a row of maximum `row_max` in work tiles of the raw score, of which `scale_log2` makes an exponent of 2.
/// `sum` is 0 for a row without keys.
__device__ __forceinline__ RowState row_state(float row_max, float scale_log2, float sum) {
  return {sum == 0 ? negative_infinity() : finite_or_zero(row_max) * (scale_log2 * ln_2), sum};
}

/// What a row comes to in the end.
struct RowEnd {
  float factor;  ///< of O that is not normalised; 0 for a row without keys
  float share;   ///< that keys have of the sum, of which a sink has the rest
  float lse;     ///< natural log
};

/// The end of a row of a query head. A head's sink is one more key without a value.
template <class Config>
__device__ __forceinline__ RowEnd row_end(const RowState& state, const AttentionParams& params, int head) {
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

/// The state of a row whose scores have lost what a mean of the keys made of them: before sinks, which have lost nothing.
template <class Config>
__device__ __forceinline__ RowState with_lse_shift(const RowState& state, const AttentionParams& params,
                                                   int batch, int head, int query) {
  if constexpr (!has_lse_shifts<Config>) return state;
  const DescaleParams& descale = params.descale;
  const float shift =
      descale
          .lse_shift[VariableSequences<Config>::query_offset(descale.lse_shift_strides, batch, head, query)];
  // mutate: ShiftOfScaledExponents
  return {__fmaf_rn(params.softmax_scale, shift, state.max), state.sum};  // −inf stays
}

/// Four normalised values of a row from `column` on: times the scales of their columns, plus the mean that values have lost
/// (steps/value_columns.cuh). A row without keys stays 0.
template <class Config>
__device__ __forceinline__ void finish_columns(float4& values, const RowEnd& end,
                                               const AttentionParams& params, const SplitInfo& info,
                                               int column) {
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

}  // namespace jit
