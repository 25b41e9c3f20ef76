// The largest score of a head as far as a warp knows it, so that most tiles of scores are not looked at: where a lane's sum of
// a tile's exponentials is less than that of this score is, so is each of them. What was not looked at is multiplied once
// more when it may be larger: o does not depend on what was known.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/row_maxima.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// Asks for what calls have raised a head's largest score to. A launch that it depends on has ended by then: keys were there.
template <class Config>
JIT_DEVICE float ask_for_largest(const AttentionParams& params, int head) {
  if constexpr (has_max_logit<Config> && !has_row_max<Config>)
    return load_relaxed(params.outputs.max_logit + head);
  return 0;
}

/// Of kernels that look for maxima later, and where rows' own maxima are not wanted.
template <class Config, bool looks_later>
class LargestKnown {
 public:
  static constexpr bool is_bound = looks_later && has_max_logit<Config> && !has_row_max<Config>;

  /// With the first tile of a work tile.
  JIT_DEVICE void begin(float of_head) {
    if constexpr (is_bound) {
      exponent_ = of_head * log2_e;
      exponent_ -= margin + ::fabsf(exponent_) * 0x1p-20f;
    }
  }
  /// Takes in what rows from `row` on have, but for rows of nobody, of zeros. By a whole warp.
  template <class State>
  JIT_DEVICE void raise(const State& state, int row, int seqlen_q, float scale_log2) {
    float largest = negative_infinity();
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (row + 8 * r < seqlen_q) largest = fmaxf(largest, state.largest[r]);  // mutate: KnownOfNobody
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
    const float exponent = largest * scale_log2;
    exponent_ = fmaxf(exponent_, exponent - (margin + ::fabsf(exponent) * 0x1p-20f));
  }
  /// Whether a score of a tile may be larger, of whose exponentials, relative to `offsets`, a lane has these sums.
  template <class Scores>
  JIT_DEVICE bool may_be_less(const Scores& exponentials, const float (&sums)[Scores::rows],
                              const float (&offsets)[Scores::rows]) const {
    float bounds[Scores::rows];
    bool fit = true;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {  // false for NaN, too
      bounds[r] = ex2(exponent_ - offsets[r]);
      fit &= sums[r] <= bounds[r];
    }
    if (__builtin_expect(__all_sync(full_warp, fit), true)) return false;
    fit = true;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const float largest = exponentials.template reduce_lane_in_chains<maximum_chains>(
          r, [](float x, float y) { return max_not_negative(x, y); });
      fit &= largest <= bounds[r];
    }
    return !__all_sync(full_warp, fit);
  }

 private:
  // What rounding makes of exponents that are not large: at most 2^-7.
  static constexpr float margin = 0.02f;
  float exponent_ = 0;
};

}  // namespace jit
