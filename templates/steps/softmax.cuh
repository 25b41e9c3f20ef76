// Online softmax over tiles of scores ("Online normalizer calculation for softmax", Milakov and Gimelshein;
// "FlashAttention-2", Dao). A thread holds scores of some rows, which it shares with other lanes
// (tiles/accumulator.cuh).
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// The limit of probabilities relative to an old maximum up to which the maximum stays, unless a key dominates its row.
/// It is far below the largest numbers of fp16 (65504), bf16 and fp32.
///
/// Probabilities are rounded to 16 bits before P V; their sum is not. Over many keys the errors even out. If one key
/// dominates a row, the rounding of its probability is the error of the row, unless it is exactly 1, that is unless its
/// score is the maximum.
///
/// 8-bit probabilities are e4m3 numbers, at most 448 and less precise below 2^-6. They are multiplied by 2^8, which
/// cancels when the row is normalized, so they may exceed the probability of the maximum by 448 / 2^8.
template <class Element>
inline constexpr float lazy_limit = sizeof(Element) == 1 ? 448.0f / 256.0f : 256.0f;
/// The largest part of a row's sum that one key may be before the maximum moves to it, which makes its P exact. 8-bit
/// elements have few digits: a key with a sixteenth of the sum already causes most of the row's error.
template <class Element>
inline constexpr float largest_part = sizeof(Element) == 1 ? 1.0f / 16 : 1.0f;
/// The factor of probabilities that become elements, and its log2, by which their exponents are raised.
template <class Element>
inline constexpr float probability_factor = sizeof(Element) == 1 ? 256.0f : 1.0f;
template <class Element>
inline constexpr float probability_raise = sizeof(Element) == 1 ? 8.0f : 0.0f;  // mutate: RaisedTwice

/// As Rescale::lazy, but per row, so that no bit depends on other rows of the tile. No config has it; kernels with
/// spans use it.
inline constexpr Rescale rescale_by_row{3};

/// The state of a thread's rows: row maximum in units of the raw score, and the thread's part of the row sum; between
/// maxima and exponentials of a tile, also the offset of exponents.
template <int rows>
struct SoftmaxState {
  static constexpr bool may_be_large = true;    ///< maxima may be large (is_large)
  static constexpr bool keeps_largest = false;  ///< keeps largest scores, which lazy maxima may be below
  static constexpr bool keeps_mean = false;     ///< keeps sums of exponents, weighted by exponentials

  float row_max[rows];
  float row_sum[rows];
  float offset[rows];

  JIT_DEVICE SoftmaxState() {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      row_max[r] = negative_infinity();
      row_sum[r] = 0;
    }
  }
};

/// The state of rows whose maxima are not large, or are treated as if they were not.
template <int rows>
struct BoundedSoftmaxState : SoftmaxState<rows> {
  static constexpr bool may_be_large = false;
};

/// A state that also keeps the largest score of each row, ignoring NaN; lazy maxima may be lower.
template <class State>
struct WithLargestScores : State {
  static constexpr bool keeps_largest = true;

  float largest[sizeof(State::row_max) / sizeof(float)];

  JIT_DEVICE WithLargestScores() {
    for (float& score : largest) score = negative_infinity();
  }
};
/// A state that also sums exponent times exponential, both relative to the maximum.
template <class State>
struct WithMeans : State {
  static constexpr bool keeps_mean = true;

  float weighted[sizeof(State::row_max) / sizeof(float)];

  JIT_DEVICE WithMeans() {
    for (float& sum : weighted) sum = 0;
  }
};
/// Selects the state: with the largest score of each row or not, with means or not.
template <bool keeps_largest, class State, bool keeps_mean = false>
using RowsState =
    typename ChosenType<keeps_mean,
                        WithMeans<typename ChosenType<keeps_largest, WithLargestScores<State>, State>::type>,
                        typename ChosenType<keeps_largest, WithLargestScores<State>, State>::type>::type;

/// The lower bound of exponents in a mean: exponentials below it are 0, and 0 · (−∞) would be NaN.
inline constexpr float least_weighted_exponent = -256;

/// Raises the largest scores of rows to those of a tile.
template <class State, int rows>
JIT_DEVICE void keep_largest(State& state, const float (&of_tile)[rows]) {
  if constexpr (State::keeps_largest) {
#pragma unroll
    for (int r = 0; r < rows; ++r) state.largest[r] = fmaxf(state.largest[r], of_tile[r]);
  }
}

/// Raises the largest scores of rows to each lane's own in a tile.
template <class Scores, class State>
JIT_DEVICE void keep_largest_of(const Scores& scores, State& state) {
  if constexpr (State::keeps_largest) {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const float of_lane = scores.reduce_lane(r, [](float x, float y) { return fmaxf(x, y); });
      state.largest[r] = fmaxf(state.largest[r], of_lane);  // mutate: LargestScoresOfTheLastTile
    }
  }
}

/// Factors from scores to exponents of 2, if they differ between rows; otherwise a float.
template <int rows>
struct RowScales {
  float of_rows[rows];
};
JIT_DEVICE float scale_of_row(float scale, int /*r*/) { return scale; }
template <int rows>
JIT_DEVICE float scale_of_row(const RowScales<rows>& scales, int r) {
  return scales.of_rows[r];
}

/// A row with a lower maximum has no keys. It is far below products of q and k, including the powers of two by which
/// converted 8-bit keys are larger.
inline constexpr float least_score = -0x1p80f;

/// The maximum, or 0 for a row without keys so far, whose maximum is −inf: its probabilities are then ex2(−inf) = 0,
/// not NaN. A row whose keys all have the least number of their type, or another stand-in for −inf, counts as one.
JIT_DEVICE float finite_or_zero(float row_max) { return row_max < least_score ? 0.0f : row_max; }

/// The limit of |maximum · scale| up to which an exponent is score · scale − rounded(maximum · scale), one
/// multiply-add. At the maximum it is the rounding error of that product, up to 2^-24 of it: below the limit at most
/// 2^-8, bf16's precision. From 2^28 on it would exceed fp16's range, then fp32's. Beyond the limit the maximum is
/// subtracted from the scores first, which is exact for scores near it.
inline constexpr float largest_offset = 0x1p17f;

/// Whether an offset is large; true for NaN.
JIT_DEVICE bool is_large(float offset) { return !(::fabsf(offset) < largest_offset); }

/// Sets the offsets of exponents, for maxima that are not large.
template <int rows, class Scale>
JIT_DEVICE void set_offsets(SoftmaxState<rows>& state, const Scale& scale_log2) {
#pragma unroll
  for (int r = 0; r < rows; ++r)
    state.offset[r] = finite_or_zero(state.row_max[r]) * scale_of_row(scale_log2, r);
}

/// Sets the offsets of a tile's exponents to its rows' maxima. If one of the warp is large, `subtract` subtracts the
/// maxima (0 for rows without keys) from the scores: of all rows, or with rescale_by_row of rows with large ones.
template <Rescale rescale = Rescale::lazy, class State, class Scale, class Subtract>
JIT_DEVICE void relate_to_maxima(State& state, const Scale& scale_log2, const Subtract& subtract) {
  set_offsets(state, scale_log2);
  if constexpr (State::may_be_large) {
    bool has_large = false;
    for (const float offset : state.offset) has_large |= is_large(offset);
    if (__builtin_expect(__any_sync(full_warp, has_large), false)) {
#pragma unroll
      for (int r = 0; r < static_cast<int>(sizeof(state.offset) / sizeof(float)); ++r) {
        if (rescale == rescale_by_row && !is_large(state.offset[r]))
          continue;  // mutate: LargeRowsBesideOthers
        subtract(r, finite_or_zero(state.row_max[r]));
        state.offset[r] = 0;
      }
    }
  }
}

/// Returns the `subtract` function of plain scores.
template <class Scores>
JIT_DEVICE auto subtract_from(Scores& scores) {
  return [&scores](int r, float max) { scores.for_each_of_row(r, [&](float& score, int) { score -= max; }); };
}

/// The maximum of a tile's scores in the thread's row `r`.
template <class Scores>
JIT_DEVICE float tile_maximum(const Scores& scores, int r) {
  return scores.reduce_row(r, [](float x, float y) { return fmaxf(x, y); });
}

/// Starts the state with the maxima of the first tile, before its exponentials.
template <Rescale rescale = Rescale::lazy, class Scores, class State, class Scale>
JIT_DEVICE void begin_maximum(Scores& scores, State& state, const Scale& scale_log2) {
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    state.row_max[r] = tile_maximum(scores, r);
    state.row_sum[r] = 0;
    if constexpr (State::keeps_largest) state.largest[r] = state.row_max[r];
    if constexpr (State::keeps_mean) state.weighted[r] = 0;
  }
  relate_to_maxima<rescale>(state, scale_log2, subtract_from(scores));
}

/// Updates the rows' maxima by those of a tile, rescales the sums, and makes the scores relative to them by `subtract`.
/// Returns whether maxima moved; then O must be multiplied by `correction`. `scale_log2` turns scores into exponents of
/// 2. Unless `always`, maxima move only if a probability becomes too large or may be a large part of its row's sum (of
/// which a thread knows its part), or if a maximum is large. With rescale_by_row, a row moves if its four lanes say so,
/// regardless of other rows; the correction of other rows is 1. Probabilities become an `Element`.
template <Rescale rescale, class Element = bf16, int rows, class State, class Scale, class Subtract>
JIT_DEVICE bool take_maxima(const float (&of_tile)[rows], State& state, const Scale& scale_log2,
                            float (&correction)[rows], const Subtract& subtract) {
  float new_max[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) new_max[r] = fmaxf(state.row_max[r], of_tile[r]);
  keep_largest(state, of_tile);  // mutate: LargestScoresOfTheFirstTile

  bool move = true;
  bool row_wants[rows];
  if constexpr (rescale != Rescale::always) {
    set_offsets(state, scale_log2);
    move = false;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float largest = ex2((new_max[r] - state.row_max[r]) * scale_of_row(scale_log2, r));
      const bool wants =
          (State::may_be_large && is_large(state.offset[r])) ||
          largest >
              fminf(lazy_limit<Element>,
                    fmaxf(state.row_sum[r] * (largest_part<Element> / probability_factor<Element>), 1.0f));
      if constexpr (rescale == rescale_by_row) row_wants[r] = wants;
      move |= wants;
    }
    move = __any_sync(full_warp, move);
  }
  if (move) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if constexpr (rescale == rescale_by_row) {
        const unsigned wanting = __ballot_sync(full_warp, row_wants[r]) >> (lane_id() & 28) & 15;
        if (wanting == 0) new_max[r] = state.row_max[r];  // mutate: RowsMoveTogether
      }
      const float shift = (state.row_max[r] - finite_or_zero(new_max[r])) * scale_of_row(scale_log2, r);
      correction[r] = ex2(shift);
      if constexpr (State::keeps_mean) {
        const float moved =
            __fmaf_rn(shift, state.row_sum[r], state.weighted[r]);  // mutate: MeanOfTheMaximumBefore
        state.weighted[r] = state.row_sum[r] == 0 ? 0 : correction[r] * moved;  // a shift may be infinite
      }
      state.row_max[r] = new_max[r];
      state.row_sum[r] *= correction[r];
    }
    relate_to_maxima<rescale>(state, scale_log2, subtract);
  }
  return move;
}

/// As take_maxima, for the maxima of `scores`; rescale_by_row requires MmaLayout, whose quads share rows.
template <Rescale rescale, class Element = bf16, class Scores, class State, class Scale>
JIT_DEVICE bool update_maximum(Scores& scores, State& state, const Scale& scale_log2,
                               float (&correction)[Scores::rows]) {
  static_assert(rescale != rescale_by_row || is_same<typename Scores::Layout, MmaLayout>,
                "a quad of lanes has a row");
  float of_tile[Scores::rows];
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) of_tile[r] = tile_maximum(scores, r);
  return take_maxima<rescale, Element>(of_tile, state, scale_log2, correction, subtract_from(scores));
}

/// Limits that a lane's scores of each row may reach before maxima move, in units of the raw score: the condition of
/// `take_maxima` in terms of scores instead of probabilities, so that it is computed before there are scores.
template <class Element, int rows, class Scale>
JIT_DEVICE void score_limits(const SoftmaxState<rows>& state, const Scale& scale_log2,
                             float (&limits)[rows]) {
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float largest =
        fminf(lazy_limit<Element>,
              fmaxf(state.row_sum[r] * (largest_part<Element> / probability_factor<Element>), 1.0f));
    limits[r] = state.row_max[r] + lg2(largest) * rcp(scale_of_row(scale_log2, r));
  }
}

/// Independent chains in which a lane computes its largest score of a row: an instruction takes 10 cycles.
inline constexpr int maximum_chains = 4;

/// Whether a lane of the warp may have a score beyond its limit, or NaN. Also returns each lane's largest scores, valid
/// unless negative: they are compared as integers, for which ptxas emits one instruction per two scores.
template <class Scores>
JIT_DEVICE bool may_exceed(const Scores& scores, const float (&limits)[Scores::rows],
                           float (&of_lane)[Scores::rows]) {
  bool may = false;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    of_lane[r] = scores.template reduce_lane_in_chains<maximum_chains>(
        r, [](float x, float y) { return max_not_negative(x, y); });
    may |= !(of_lane[r] <= limits[r]) || limits[r] < 0;  // mutate: Exceed
  }
  return __any_sync(full_warp, may);
}

/// Called if may_exceed: whether the lanes' largest scores are valid, so that no score is NaN.
template <int rows>
JIT_DEVICE bool are_known(const float (&of_lane)[rows], const float (&limits)[rows]) {
  bool are = true;
#pragma unroll
  // mutate: NoNumbersAreKnown
  for (int r = 0; r < rows; ++r) are &= limits[r] >= 0 && of_lane[r] == of_lane[r];
  return __all_sync(full_warp, are);
}

/// The exponent of 2 by which a maximum of 8-bit P moves beyond the row's largest score, so that it need not soon move
/// again: a row whose weight is spread over many keys loses little. It is an integer, so that the weight of the largest
/// score stays an exact power of two. `sum` is the row sum relative to the largest score; small weights matter little if
/// it is at least 4 · `least_sum`.
JIT_DEVICE float headroom(float sum, float least_sum) {
  constexpr float shared = 8 * probability_factor<fp8_e4m3>;
  const float least = fmaxf(8 * least_sum, shared);
  return sum >= 4 * least ? 2.0f : sum >= 2 * least ? 1.0f : 0.0f;
}

/// Called if may_exceed: moves the warp's maxima, ahead by `headroom`, if some score exceeds its limit. Returns whether
/// they moved; then O must be multiplied by `correction`. Compares negative scores again, which integers misorder.
template <class Scores, class Scale>
JIT_DEVICE bool raise_to_scores(const Scores& scores, const float (&limits)[Scores::rows],
                                float (&of_lane)[Scores::rows], SoftmaxState<Scores::rows>& state,
                                const Scale& scale_log2, float least_sum, float (&correction)[Scores::rows]) {
  bool is_negative = false;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) is_negative |= limits[r] < 0;
  if (__any_sync(full_warp, is_negative)) {
    bool exceeds = false;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      of_lane[r] = scores.template reduce_lane_in_chains<maximum_chains>(
          r, [](float x, float y) { return fmaxf(x, y); });
      exceeds |= of_lane[r] > limits[r];
    }
    if (!__any_sync(full_warp, exceeds)) return false;
  }
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    const float scale = scale_of_row(scale_log2, r);
    float of_row = Scores::Layout::reduce(of_lane[r], [](float x, float y) { return fmaxf(x, y); });
    float sum = Scores::Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
    // A key that now dominates the row leaves the others small: relative to it they count.
    sum *= ex2((state.row_max[r] - fmaxf(state.row_max[r], of_row)) * scale);
    of_row += headroom(sum, least_sum) * rcp(scale);
    const float new_max = fmaxf(state.row_max[r], of_row);
    correction[r] = ex2((state.row_max[r] - finite_or_zero(new_max)) * scale);
    state.row_max[r] = new_max;
    state.row_sum[r] *= correction[r];
  }
  return true;
}

/// Turns scores into exponentials, relative to `offsets` and times 2^`raise`, and adds them to `sums`.
template <class Scores, class Scale>
JIT_DEVICE void exponentiate(Scores& scores, const float (&offsets)[Scores::rows], const Scale& scale_log2,
                             float (&sums)[Scores::rows], float raise = 0) {
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    const float scale = scale_of_row(scale_log2, r), offset = offsets[r] - raise;
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
      float& x = scores.at(r, n, 0);
      float& y = scores.at(r, n, 1);
      x = ex2(__fmaf_rn(x, scale, -offset));
      y = ex2(__fmaf_rn(y, scale, -offset));
      sums[r] += x + y;
    }
  }
}

/// Turns scores into exponentials relative to the rows' maxima, which include this tile.
template <class Scores, class Scale>
JIT_DEVICE void exponentiate(Scores& scores, SoftmaxState<Scores::rows>& state, const Scale& scale_log2,
                             float raise = 0) {
  exponentiate(scores, state.offset, scale_log2, state.row_sum, raise);
}

/// Turns scores into exponentials relative to the rows' maxima, and sums weighted exponents.
template <class Scores, class State, class Scale>
requires State::keeps_mean JIT_DEVICE void exponentiate(Scores& scores, State& state, const Scale& scale_log2,
                                                        float raise = 0) {
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    const float scale = scale_of_row(scale_log2, r), offset = state.offset[r] - raise;
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < Scores::pair; ++i) {
        float& x = scores.at(r, n, i);
        const float exponent = __fmaf_rn(x, scale, -offset);
        x = ex2(exponent);
        state.row_sum[r] += x;
        state.weighted[r] = __fmaf_rn(x, fmaxf(exponent, least_weighted_exponent), state.weighted[r]);
      }
    }
  }
}

/// The largest sum of a thread's exponentials of a tile's row that may stay relative to the maximum of earlier tiles,
/// which cancels when the row is normalized. fp16 ends at 65504; bf16 and the accumulators of O end at 2^127, which
/// leaves 2^87 for values times keys.
template <class Element>
inline constexpr float overflow_limit = is_same<Element, fp16> ? 0x1p14f : 0x1p40f;

/// A thread tests for a dominating key if its exponentials of one tile exceed this multiple of those of all earlier
/// tiles.
///
/// A lower value misses fewer such keys, but tests more often by chance in the second tile of a row. On inputs with
/// outliers the error of O is 1.04 times that with true maxima for 2, 1.05 for 3.
inline constexpr float sums_that_stand_out = 2.5f;

/// Whether a thread's rows need no other look: its `sums` of the tile are not much larger than its sums so far, nor too large,
/// and no offset is large.
template <class Element, int rows, class State>
JIT_DEVICE bool stay_in_range(const float (&sums)[rows], const float (&offsets)[rows], const State& state) {
  bool fits = true;
#pragma unroll
  for (int r = 0; r < rows; ++r) {  // false for NaN, too
    fits &= !(State::may_be_large && is_large(offsets[r])) &&
            sums[r] <= fminf(sums_that_stand_out * state.row_sum[r], overflow_limit<Element>);
  }
  return fits;
}

/// Whether some row of the warp needs another look: a thread's `sums` of the tile are much larger than its sums so far,
/// or too large, or an offset is large (infinite before the first visible key).
template <class Element, int rows, class State>
JIT_DEVICE bool stands_out(const float (&sums)[rows], const float (&offsets)[rows], const State& state) {
  return __any_sync(full_warp, !stay_in_range<Element>(sums, offsets, state));
}

/// Whether the exponentials must be computed again, relative to maxima that include this tile.
template <class Element, class State, int rows>
JIT_DEVICE bool is_overflow(const float (&sums)[rows], const float (&offsets)[rows]) {
  bool fits = true;
#pragma unroll
  for (int r = 0; r < rows; ++r)
    fits &= !(State::may_be_large && is_large(offsets[r])) && sums[r] <= overflow_limit<Element>;
  return __any_sync(full_warp, !fits);
}

/// The limit of exponentials below which rescale_by_row keeps a row's maximum in each of its four lanes; `sum` is the
/// lane's earlier sum. The factor leaves room for rounded offsets, which change exponents by at most 2^-7.
template <class Element>
JIT_DEVICE float limit_of_stay(float sum) {
  constexpr float rounding = 0.98f;
  const float least = MmaLayout::reduce(sum, [](float x, float y) { return fminf(x, y); });
  return rounding * fminf(lazy_limit<Element>, fmaxf(least, 1.0f));
}

/// Whether no maximum of the warp moves with rescale_by_row, judged by a tile's exponentials, which are in the sums of
/// `state` that were `before`: the sum of a lane, or else each exponential, is at most its row's limit. False if
/// unknown.
template <class Scores, class State>
JIT_DEVICE bool all_stay(const Scores& scores, const State& state, const float (&before)[Scores::rows],
                         const float (&limits)[Scores::rows], const float (&offsets)[Scores::rows]) {
  bool fit = true;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {  // false for NaN, too
    fit &= !(State::may_be_large && is_large(offsets[r])) && state.row_sum[r] - before[r] <= limits[r];
  }
  if (__builtin_expect(__all_sync(full_warp, fit), true)) return true;
  fit = true;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    const float largest = scores.template reduce_lane_in_chains<maximum_chains>(
        r, [](float x, float y) { return max_not_negative(x, y); });
    fit &= !(State::may_be_large && is_large(offsets[r])) && largest <= limits[r];
  }
  return __all_sync(full_warp, fit);
}

/// If a key dominates its row, moves the warp's maxima to the largest of a tile's exponentials, which are relative to
/// the maxima of earlier tiles, and rescales exponentials and sums, which include the tile. Returns whether it did;
/// then O must be multiplied by `correction`.
template <class Scores, class Scale>
JIT_DEVICE bool raise_maximum(Scores& scores, SoftmaxState<Scores::rows>& state, const Scale& scale_log2,
                              float (&correction)[Scores::rows]) {
  const auto larger = [](float x, float y) { return max_not_negative(x, y); };
  float largest[Scores::rows];
  bool is_dominated = false;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    largest[r] = scores.reduce_lane(r, larger);
    is_dominated |= largest[r] > fmaxf(0.5f * state.row_sum[r], 1.0f);
  }
  if (!__any_sync(full_warp, is_dominated)) return false;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {
    largest[r] = fmaxf(Scores::Layout::reduce(largest[r], larger), 1.0f);
    const float scale = scale_of_row(scale_log2, r);
    const float row_max = state.row_max[r] + lg2(largest[r]) * rcp(scale);
    // The factor of offsets as `exponentiate` rounds them, or later exponentials would be relative to
    // something else.
    correction[r] = ex2(__fmul_rn(state.row_max[r], scale) - __fmul_rn(row_max, scale));
    state.row_max[r] = row_max;
    state.row_sum[r] *= correction[r];
  }
  scores.scale_rows(correction);
  return true;
}

/// Updates maxima and sums, turns scores into probabilities that become an `Element`, and rescales O.
template <Rescale rescale, class Element = bf16, class Scores, class Output, class State, class Scale>
JIT_DEVICE void online_softmax(Scores& scores, Output& output, State& state, const Scale& scale_log2) {
  float correction[Scores::rows];
  if (update_maximum<rescale, Element>(scores, state, scale_log2, correction)) output.scale_rows(correction);
  exponentiate(scores, state, scale_log2, probability_raise<Element>);
}

/// Replaces 1 / sum for a row without keys. Sums are relative to the maximum or less, so that all other inverses are at
/// most about 1.
inline constexpr float inverse_without_keys = 0x1p100f;

/// Values of a row that has been multiplied by `inverse`; 0 for a row without keys, for which 0 · v may be NaN.
JIT_DEVICE unsigned keep_if_has_keys(unsigned packed, float inverse) {
  return inverse > 0.5f * inverse_without_keys ? 0 : packed;
}

JIT_DEVICE float keep_if_has_keys(float value, float inverse) {
  return __int_as_float(
      static_cast<int>(keep_if_has_keys(static_cast<unsigned>(__float_as_int(value)), inverse)));
}

/// The factor by which a row whose exponentials have this sum is multiplied in the end.
JIT_DEVICE float inverse_of_sum(float sum) { return rcp(sum != 0.0f ? sum : 1 / inverse_without_keys); }

/// The factor that normalizes each row of O, and log(Σ exp(score)) in natural units, −inf for a row without keys.
/// `Layout` is that of the scores; sums have a factor of 2^`raise`.
template <class Layout, int rows, class Scale>
JIT_DEVICE void finish_rows(const SoftmaxState<rows>& state, const Scale& scale_log2, float (&inverse)[rows],
                            float (&lse)[rows], float raise = 0) {
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float sum = Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
    const bool has_keys = sum != 0.0f;
    inverse[r] = inverse_of_sum(sum);
    // In natural units: as exponents of 2 the largest floats would overflow.
    lse[r] = has_keys ? __fmaf_rn(finite_or_zero(state.row_max[r]), scale_of_row(scale_log2, r) * ln_2,
                                  (lg2(sum) - raise) * ln_2)  // mutate: LseOfRaisedSums
                      : negative_infinity();
  }
}

/// Adds a key without a value, of score `sink` in natural units, to the results of `finish_rows`. `shares` are the
/// shares of the other keys in the sums.
template <int rows>
JIT_DEVICE void add_sink(float sink, float (&inverse)[rows], float (&lse)[rows], float (&shares)[rows]) {
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    shares[r] = 1;
    if (lse[r] == negative_infinity()) {  // O of a row without keys is 0
      lse[r] = sink;
      continue;
    }
    const float max = fmaxf(lse[r], sink);
    const float keys = ex2((lse[r] - max) * log2_e), sum = keys + ex2((sink - max) * log2_e);
    shares[r] = keys * rcp(sum);
    inverse[r] *= shares[r];
    lse[r] = __fmaf_rn(lg2(sum), ln_2, max);
  }
}
template <int rows>
JIT_DEVICE void add_sink(float sink, float (&inverse)[rows], float (&lse)[rows]) {
  float shares[rows];
  add_sink(sink, inverse, lse, shares);
}

}  // namespace jit
