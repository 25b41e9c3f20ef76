// Exponentials in e4m3 without the special function unit, by interpolation between powers of two.
//
// The bits of a positive e4m3 number p, read as an integer, are 8 (log2 p + 7) if p is a power of two, and grow
// linearly in between. So 8 (x + 7), rounded, are approximately the bits of 2^x (Schraudolph, "A Fast, Compact
// Approximation of the Exponential Function", 1999). The result is too large by (1 + f) / 2^f, f the fraction of x; the
// mean, 1 / (2 ln² 2), is subtracted. The remaining error is below that of rounding to 3 bits.
//
// Below 2^-6 e4m3 has a constant spacing, and the result is too small by up to 2^-7. Rows in which this matters use
// exponentials (`weigh_enough`).
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// How many exponentials make a group, of which some are interpolated.
inline constexpr int exponential_group = 8;

/// Whether keys 16 · `pair` to 16 · `pair` + 15 of a tile are interpolated, for one of a thread's two rows in each
/// block of rows: `interpolations` of 8 groups of 16 keys, evenly spread, different ones in both rows.
template <int interpolations>
JIT_DEVICE constexpr bool is_interpolated(int row, int pair) {
  const int place = pair + row;
  return (place + 1) * interpolations / exponential_group > place * interpolations / exponential_group;
}

/// 2^(`scale` · s − `offset`) of a lane's four scores s of row `r` in the column blocks `n` and `n` + 1, in e4m3: none is
/// more than 448, and what is less than 2^-7 becomes 0. Scores are numbers, or −inf.
template <class Scores>
JIT_DEVICE unsigned interpolate_e4m3(const Scores& scores, int r, int n, float scale, float offset) {
  constexpr float steps = 1 << fp8_e4m3::mantissa_bits;
  constexpr float mean_excess = 0.4603f;  // log2 of 1 / (2 ln² 2), in steps  // mutate: WeightsWithAnExcess
  const float scale_steps = scale * steps;
  const float offset_steps = __fmaf_rn(offset, steps, mean_excess - steps * fp8_e4m3::bias);
  const auto bits = [&](int block, int e) {
    return __fmaf_rn(scores.at(r, block, e), scale_steps, -offset_steps);
  };
  // mutate: HalvesOfWordsExchanged
  return pack_rounded(bits(n, 0), bits(n, 1), bits(n + 1, 0), bits(n + 1, 1));
}

/// The row sum in each of its four lanes from which on a row is interpolated: a mean weight of ½ per key. Then the loss
/// of small weights, at most 2^-7 per key, is below 2^-7 of the sum, as half of the keys are interpolated.
JIT_DEVICE constexpr float least_sum_of_keys(int keys) { return keys * (0.5f / 4); }

/// The largest exponent of a maximum in the first tile of keys with which keys are interpolated: from 2^16 on, floats
/// round by more than interpolation errs, and later maxima may be larger.
inline constexpr float largest_first_exponent = 0x1p13f;

/// Whether no maximum of a lane's rows exceeds this exponent.
template <int rows, class Scale>
JIT_DEVICE bool are_small(const float (&row_max)[rows], const Scale& scale_log2) {
  bool are = true;
#pragma unroll
  for (int r = 0; r < rows; ++r)
    // mutate: LargeExponentsInterpolated
    are &= ::fabsf(finite_or_zero(row_max[r]) * scale_of_row(scale_log2, r)) <= largest_first_exponent;
  return are;
}

/// Whether all row sums of a warp reach `least_sum`.
template <int rows>
JIT_DEVICE bool weigh_enough(const float (&row_sum)[rows], float least_sum) {
  bool do_all = true;
#pragma unroll
  for (int r = 0; r < rows; ++r) do_all &= row_sum[r] >= least_sum;  // mutate: DominatedRowsInterpolated
  return __all_sync(full_warp, do_all);
}

}  // namespace jit
