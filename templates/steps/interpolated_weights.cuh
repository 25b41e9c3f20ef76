// Exponentials that become e4m3 without the unit that computes them, by interpolation between powers of two.
//
// The bits of a positive e4m3 number, exponent above mantissa, read as a whole number, are 8 (log2 p + 7) where p is a
// power of two, and grow evenly with p in between. So 8 (x + 7), rounded, are the bits of nearly 2^x (Schraudolph, "A
// Fast, Compact Approximation of the Exponential Function", 1999): too much by (1 + f) / 2^f, f the fraction of x, which
// is 1 / (2 ln² 2) in the mean, and is taken off. What remains is less than what rounding to 3 bits does.
//
// Below 2^-6 e4m3 has the same distance everywhere, and the number is too small by up to 2^-7. Rows whose sum that
// counts in keep to exponentials (`weigh_enough`).
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "steps/softmax.cuh"

namespace jit {

/// How many exponentials make a group, of which some are interpolated.
inline constexpr int exponential_group = 8;

/// Whether the keys 16 · `pair` to 16 · `pair` + 15 of a tile are interpolated, for one of the two rows that a thread has
/// in each block of rows: of 8 sixteens `interpolations` are, spread evenly, in the other row others.
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

/// The weight of a row's keys from which on it is interpolated, in each of four lanes that have a quarter of
/// its sum: ½ in the mean. Then what is lost of small weights, 2^-7 at most of each key, is less than 2^-7 of
/// the sum, as half of the keys are interpolated.
JIT_DEVICE constexpr float least_sum_of_keys(int keys) { return keys * (0.5f / 4); }

/// The largest exponent of a maximum, of those in the first tile of keys, beside which keys are interpolated: floats round
/// what is beyond 2^16 by more than interpolation does, and later maxima may be larger.
inline constexpr float largest_first_exponent = 0x1p13f;

/// Whether no maximum of a lane's rows is larger.
template <int rows, class Scale>
JIT_DEVICE bool are_small(const float (&row_max)[rows], const Scale& scale_log2) {
  bool are = true;
#pragma unroll
  for (int r = 0; r < rows; ++r)
    // mutate: LargeExponentsInterpolated
    are &= ::fabsf(finite_or_zero(row_max[r]) * scale_of_row(scale_log2, r)) <= largest_first_exponent;
  return are;
}

/// Whether the sums of all lanes of a warp come to that.
template <int rows>
JIT_DEVICE bool weigh_enough(const float (&row_sum)[rows], float least_sum) {
  bool do_all = true;
#pragma unroll
  for (int r = 0; r < rows; ++r) do_all &= row_sum[r] >= least_sum;  // mutate: DominatedRowsInterpolated
  return __all_sync(full_warp, do_all);
}

}  // namespace jit
