// Turns scores into e4m3 P k-step by k-step: exponentials, some of which are interpolated, and packing.
#pragma once

#include "base/prelude.cuh"
#include "steps/interpolated_weights.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// Turns scores into exponentials relative to `row_offsets`, times 2^`raise`, in steps of 32 columns. After each step
/// it calls `finish(step, words)`, which returns the packed e4m3 words, two per row; `words` has the interpolated ones
/// (`is_interpolated`), whose scores stay unchanged. Adds the sums to `row_sum` if `adds_up`, of interpolated words as
/// rounded.
///
/// The special function unit (MUFU) is the bottleneck if it is kept busy. ptxas would rather place all multiply-adds
/// first: so those of a step depend on all exponentials of the step before the last one, by an addition of 0 times
/// their sum, or times their words, which are finite as floats because no element is negative. With interpolations
/// instructions are the bottleneck, and these additions are omitted.
template <int interpolations, bool adds_up, class Scores, class Scale, class Finish>
JIT_DEVICE void exponentiate_by_steps(Scores& scores, const float (&row_offsets)[Scores::rows],
                                      float (&row_sum)[Scores::rows], const Scale& scale_log2, float raise,
                                      const Finish& finish) {
  constexpr int step_blocks = 4, steps = Scores::column_blocks / step_blocks;
  static_assert(Scores::rows == 2);
  constexpr bool holds_back = interpolations == 0;
  float offsets[Scores::rows], sums[Scores::rows] = {}, sums_before[Scores::rows] = {};
  unsigned words[steps][4], interpolated_sums[Scores::rows] = {};
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) offsets[r] = row_offsets[r] - raise;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int r = 0; holds_back && step > 1 && r < Scores::rows; ++r) {
      if constexpr (adds_up) {
        offsets[r] = __fmaf_rn(sums_before[r], 0.0f, offsets[r]);
      } else {
        for (int i = r; i < 4; i += Scores::rows)
          offsets[r] = __fmaf_rn(__uint_as_float(words[step - 2][i]), 0.0f, offsets[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) sums_before[r] = sums[r];
    unsigned interpolated[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = i % 2, n = step * step_blocks + i / 2 * 2;
      const float scale = scale_of_row(scale_log2, r);
      if (is_interpolated<interpolations>(r, 2 * step + i / 2)) {
        interpolated[i] = interpolate_e4m3(scores, r, n, scale, offsets[r]);  // mutate: WordsOfTheFirstBlocks
        if constexpr (adds_up) interpolated_sums[r] = add_e4m3(interpolated_sums[r], interpolated[i]);
        continue;
      }
#pragma unroll
      for (int m = n; m < n + 2; ++m) {
        float& x = scores.at(r, m, 0);
        float& y = scores.at(r, m, 1);
        x = ex2(__fmaf_rn(x, scale, -offsets[r]));
        y = ex2(__fmaf_rn(y, scale, -offsets[r]));
        if constexpr (adds_up) row_sum[r] += x, sums[r] += y;
      }
    }
    const unsigned(&packed)[4] = finish(step, interpolated);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[step][i] = packed[i];
  }
  if constexpr (adds_up) {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      row_sum[r] += sums[r];  // mutate: HalfOfTheSums
      // mutate: SumsWithoutInterpolatedWords
      if constexpr (interpolations > 0) row_sum[r] += sum_of_halves(interpolated_sums[r]);
    }
  }
}

}  // namespace jit
