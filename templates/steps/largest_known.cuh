// The largest score of a head as far as a warp knows it, so that most tiles of scores are not looked at: where the sum of a
// lane's exponentials of a tile is less than that score's, so is each of them. A tile with a score that may be larger is
// multiplied once more and looked at; o does not depend on what was known. Where scores are nearly alike that would be each
// tile: once one of them was as large as the largest, the next tile is looked at before it becomes exponentials.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/row_maxima.cuh"
#include "ptx/atomic.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Kernels that keep each row's largest score know nothing of a head's.
template <class Config, bool is_known>
struct LargestKnown {
  static constexpr bool is_bound = false;
};
template <class Config>
class LargestKnown<Config, true> {
 public:
  static constexpr bool is_bound = true;

  /// Before the first tile of a work tile, perhaps of another head.
  JIT_DEVICE void forget() {
    // mutate: LargestOfAnotherHead
    exponent_ = with_bits(-0x1p127f, rows_have_scores);
  }
  /// Asks for what calls have raised a head's largest score to, when keys of the call have come: what wrote it has ended.
  static JIT_DEVICE float ask(const AttentionParams& params, int head) {
    return __uint_as_float(load_relaxed(reinterpret_cast<const unsigned*>(params.outputs.max_logit) + head));
  }
  /// Takes the answer in.
  JIT_DEVICE void know(float of_head) {
    const float known = below(of_head * log2_e);
    set(fmaxf(exponent_, known), exponent_ > known - 0.01f);
  }
  /// Raises what the call has of a head by the largest scores of the lane's rows, the first of which is `first_row`, but for rows
  /// of nobody, of zeros. By a whole warp.
  template <int rows, class Scale>
  JIT_DEVICE void raise(const AttentionParams& params, int head, const float (&of_lane)[rows], int first_row,
                        int seqlen_q, const Scale& scale_log2) {
    float largest = negative_infinity();
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (first_row + 8 * r < seqlen_q) largest = fmaxf(largest, of_lane[r]);  // mutate: KnownRowsOfNobody
    }
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));  // mutate: KnownOfOneLane
    const float exponent = largest * scale_of_row(scale_log2, 0);
    set(fmaxf(exponent_, below(exponent)), exponent >= exponent_);
    if (lane_id() == 0)
      atomic_max_relaxed(params.outputs.max_logit + head, largest < least_score
                                                              ? negative_infinity()
                                                              : largest * score_factor<Config>(params));
  }
  /// Whether the scores that were looked at last could not be told from the largest.
  JIT_DEVICE bool is_near() const { return (__float_as_int(exponent_) & near) != 0; }
  /// Whether largest scores of a tile are all known: at most their rows' maxima, which the head has been raised to. By a whole
  /// warp.
  template <int rows, class Scale>
  JIT_DEVICE bool are_of_rows(const float (&of_lane)[rows], const float (&row_max)[rows],
                              const Scale& scale_log2) {
    bool are = (__float_as_int(exponent_) & rows_have_scores) != 0, is_near = false;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      are &= of_lane[r] <= row_max[r];
      is_near |= of_lane[r] * scale_of_row(scale_log2, r) >= exponent_;
    }
    if (!__all_sync(full_warp, are)) return false;
    set(exponent_, __any_sync(full_warp, is_near));
    return true;
  }
  /// Behind a row's maximum that was found from exponentials, and rounded.
  JIT_DEVICE void forget_rows() { exponent_ = with_bits(exponent_, bits() & ~rows_have_scores); }
  /// Whether no score of a lane may be larger, whose exponentials, relative to `offsets`, have these sums. False for NaN.
  template <int rows>
  JIT_DEVICE bool are_less(const float (&sums)[rows], const float (&offsets)[rows]) const {
    bool fit = true;
#pragma unroll
    for (int r = 0; r < rows; ++r) fit &= sums[r] <= at_most_ex2(exponent_ - offsets[r]);
    return fit;
  }
  /// Whether a score of a tile may be larger, whose exponentials these are. By bounds that are exact: flat scores are all close to
  /// their head's largest one.
  template <class Scores>
  JIT_DEVICE bool may_be_less(const Scores& exponentials, const float (&offsets)[Scores::rows]) const {
    bool fit = true;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const float largest = exponentials.template reduce_lane_in_chains<maximum_chains>(
          r, [](float x, float y) { return max_not_negative(x, y); });
      fit &= largest <= ex2(exponent_ - offsets[r]);
    }
    return !__all_sync(full_warp, fit);
  }

 private:
  // An exponent less what rounding may have made of it, which is at most 2^-7 where it is not large.
  static JIT_DEVICE float below(float exponent) { return exponent - (0.02f + ::fabsf(exponent) * 0x1p-20f); }

  // Nearly 2^x, and at most that, by no special function: the bits of a float are its logarithm between powers of two. Negative
  // or small for x from -256 to -126; rows of queries that exist have no smaller one.
  static JIT_DEVICE float at_most_ex2(float x) {
    constexpr unsigned one = 0x3f800000u,
                       chord = 0x000b0600u;  // 2^23 times 0.0861, by which a chord is above 2^x
    const unsigned bits = __float_as_uint(fminf(x, 100.0f) + 768.0f);   // 14 bits of fraction
    return __uint_as_float((bits << 9) + (one + 0x80000000u - chord));  // mutate: BoundsAboveExponentials
  }

  // Two answers are the last bits of a float, since registers of a thread are few.
  static constexpr int near = 1, rows_have_scores = 2, all_bits = 3;
  static JIT_DEVICE float with_bits(float exponent, int bits) {
    return __int_as_float((__float_as_int(exponent) & ~all_bits) | bits);
  }
  JIT_DEVICE int bits() const { return __float_as_int(exponent_) & all_bits; }
  // Alike in all lanes.
  JIT_DEVICE void set(float exponent, bool is_near) {
    const float own = with_bits(exponent, (bits() & rows_have_scores) | (is_near ? near : 0));
    exponent_ = __int_as_float(uniform(__float_as_int(own)));
  }

  float exponent_;
};

}  // namespace jit
