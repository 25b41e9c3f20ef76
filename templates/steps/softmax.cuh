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

/// An old maximum stays while probabilities relative to it are at most this, far from fp16's 65504 and bf16's
/// and fp32's limits, and while no key dominates its row.
///
/// Probabilities are rounded to 16 bits before they are multiplied with values; their sum is not. Over many
/// keys that evens out. A row that hangs on one key is off by the rounding of that key's probability, unless it
/// is exactly 1: then its score is the maximum.
///
/// 8-bit probabilities are e4m3 numbers, which end at 448 and lose precision below 2^-6. They are multiplied by 2^8, which
/// cancels when the row is normalized, so they may exceed the probability of the maximum by 448 / 2^8.
template <class Element>
inline constexpr float lazy_limit = sizeof(Element) == 1 ? 448.0f / 256.0f : 256.0f;
/// The part of a row's sum that one key may be before the maximum must move to it, so that it is exact. Elements of 8 bits
/// keep three digits, so that a key that is a sixteenth of its row is already most of the row's error.
template <class Element>
inline constexpr float largest_part = sizeof(Element) == 1 ? 1.0f / 16 : 1.0f;
/// The factor of probabilities that become elements, and its log2, by which their exponents are raised.
template <class Element>
inline constexpr float probability_factor = sizeof(Element) == 1 ? 256.0f : 1.0f;
template <class Element>
inline constexpr float probability_raise = sizeof(Element) == 1 ? 8.0f : 0.0f;  // mutate: RaisedTwice

/// As Rescale::lazy, but each row by itself, so that no bit of it depends on the rows beside it. No config has it;
/// kernels do where keys are summed in spans.
inline constexpr Rescale rescale_by_row{3};

/// The state of the rows of which a thread holds scores: maximum in units of the raw score, and this thread's
/// part of the sum. Between the maxima of a tile and its exponentials: what their exponents are relative to, too.
template <int rows>
struct SoftmaxState {
  static constexpr bool may_be_large = true;    ///< maxima, as `is_large` has it
  static constexpr bool keeps_largest = false;  ///< scores of rows, which maxima may stay below
  static constexpr bool keeps_mean = false;     ///< sums of exponents, weighted by exponentials

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

/// A state that also keeps the largest score of each row, NaN apart: where maxima need not move, they are less.
template <class State>
struct WithLargestScores : State {
  static constexpr bool keeps_largest = true;

  float largest[sizeof(State::row_max) / sizeof(float)];

  JIT_DEVICE WithLargestScores() {
    for (float& score : largest) score = negative_infinity();
  }
};
/// A state that also sums exponents, relative to the maximum as exponentials are, each times its exponential.
template <class State>
struct WithMeans : State {
  static constexpr bool keeps_mean = true;

  float weighted[sizeof(State::row_max) / sizeof(float)];

  JIT_DEVICE WithMeans() {
    for (float& sum : weighted) sum = 0;
  }
};
/// The state of rows whose largest scores, and means, are wanted, or not.
template <bool keeps_largest, class State, bool keeps_mean = false>
using RowsState =
    typename ChosenType<keeps_mean,
                        WithMeans<typename ChosenType<keeps_largest, WithLargestScores<State>, State>::type>,
                        typename ChosenType<keeps_largest, WithLargestScores<State>, State>::type>::type;

/// Exponents below this have exponentials of 0, and so no part of a mean.
inline constexpr float least_weighted_exponent = -256;

/// Takes the largest scores of a tile's rows into those of all tiles.
template <class State, int rows>
JIT_DEVICE void keep_largest(State& state, const float (&of_tile)[rows]) {
  if constexpr (State::keeps_largest) {
#pragma unroll
    for (int r = 0; r < rows; ++r) state.largest[r] = fmaxf(state.largest[r], of_tile[r]);
  }
}

/// Takes in a tile of scores, of which each lane keeps its own largest ones.
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

/// Factors that make exponents of 2 of scores, where they differ from row to row; else it is one number.
template <int rows>
struct RowScales {
  float of_rows[rows];
};
JIT_DEVICE float scale_of_row(float scale, int /*r*/) { return scale; }
template <int rows>
JIT_DEVICE float scale_of_row(const RowScales<rows>& scales, int r) {
  return scales.of_rows[r];
}

/// A row whose maximum is less has no keys. It is far below what q and k make, times the powers of two by which keys of 8
/// bits are larger on their way.
inline constexpr float least_score = -0x1p80f;

/// A row without any key so far has maximum −inf; subtracting 0 instead leaves its probabilities at ex2(−inf)
/// = 0 and makes no NaN. So does a row of which all keys were given the least number of their type, or another one that
/// stands for −inf.
JIT_DEVICE float finite_or_zero(float row_max) { return row_max < least_score ? 0.0f : row_max; }

/// An exponent is score · scale − rounded(maximum · scale), by one multiply-add. Of the maximum itself that is what
/// rounding took off its product, up to 2^-24 of it, and not 0; all others are less. Below this limit it is at most
/// 2^-8, as much as bf16 rounds off. From 2^28 on it would be more than fp16 holds, then more than fp32 does, and other
/// maxima would have another one: such a row's maximum is subtracted from its scores, which is exact where they are near.
inline constexpr float largest_offset = 0x1p17f;

/// True for NaN, too.
JIT_DEVICE bool is_large(float offset) { return !(::fabsf(offset) < largest_offset); }

/// Sets the offsets that exponents of scores are relative to, while these are not large.
template <int rows, class Scale>
JIT_DEVICE void set_offsets(SoftmaxState<rows>& state, const Scale& scale_log2) {
#pragma unroll
  for (int r = 0; r < rows; ++r)
    state.offset[r] = finite_or_zero(state.row_max[r]) * scale_of_row(scale_log2, r);
}

/// Relates a tile of scores to its rows' maxima, which take it in. Where one of the warp's is large, `subtract` subtracts
/// maxima, or 0 where a row has no keys, from the scores: of all rows, or with rescale_by_row of those that are large.
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

/// The subtraction from `scores` as they are.
template <class Scores>
JIT_DEVICE auto subtract_from(Scores& scores) {
  return [&scores](int r, float max) { scores.for_each_of_row(r, [&](float& score, int) { score -= max; }); };
}

/// The maximum of a tile's scores in row `r` of those that the thread holds.
template <class Scores>
JIT_DEVICE float tile_maximum(const Scores& scores, int r) {
  return scores.reduce_row(r, [](float x, float y) { return fmaxf(x, y); });
}

/// The state that a first tile of scores leaves, before its exponentials.
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

/// Takes the maxima of a tile of scores into those of its rows, brings the sums up to them, and relates the scores to
/// them by `subtract`. Returns whether the rows' maxima moved, and then `correction` is what the output must be multiplied
/// by. `scale_log2` is what makes a score an exponent of 2. Unless they must `always` move, they do when a probability
/// became too large or may be a large part of its row's sum, of which a thread knows its own part, and where a maximum
/// is large. With rescale_by_row those of a row do when its own four lanes say so, whatever the warp's other rows are;
/// the correction of a row that stays is 1. Probabilities become an `Element`.
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

/// Softmax of a tile of scores. Accumulators with rescale_by_row are in MmaLayout, whose quads of lanes share rows.
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

/// Limits that a lane's scores of each row may reach before maxima move, in units of the raw score: as
/// `take_maxima` has it, of scores in place of probabilities, so that it can be worked out before there are
/// scores.
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

/// Chains in which a lane looks for its largest score of a row: an instruction waits 10 clocks for the one before.
inline constexpr int maximum_chains = 4;

/// Whether some lane of the warp may have a score beyond its limit, or one that is not a number, and each lane's largest
/// scores where these are not negative: as integers, of which the assembler makes one instruction for two scores.
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

/// Where they may: whether the lanes' largest scores are known, so that all scores are numbers, or −inf.
template <int rows>
JIT_DEVICE bool are_known(const float (&of_lane)[rows], const float (&limits)[rows]) {
  bool are = true;
#pragma unroll
  // mutate: NoNumbersAreKnown
  for (int r = 0; r < rows; ++r) are &= limits[r] >= 0 && of_lane[r] == of_lane[r];
  return __all_sync(full_warp, are);
}

/// By how much a maximum of P of 8 bits moves beyond the row's largest score, as an exponent of 2, so that it need not soon
/// move again: where many keys share a row, little is lost by it. It is a whole number, so that the weight of the largest
/// score, which has most to lose, is a power of two, as exact as without. `sum` is that of the row, of which `least_sum`
/// is a quarter at least where small weights count for little.
JIT_DEVICE float headroom(float sum, float least_sum) {
  constexpr float shared = 8 * probability_factor<fp8_e4m3>;
  const float least = fmaxf(8 * least_sum, shared);
  return sum >= 4 * least ? 2.0f : sum >= 2 * least ? 1.0f : 0.0f;
}

/// Where they may: moves the warp's maxima if some do. Returns whether, and then `correction` is what the output must be
/// multiplied by. Integers do not have the order of negative scores, which are looked at again. They move ahead by `headroom`.
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
    const float sum = Scores::Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
    of_row += headroom(sum, least_sum) * rcp(scale);
    const float new_max = fmaxf(state.row_max[r], of_row);
    correction[r] = ex2((state.row_max[r] - finite_or_zero(new_max)) * scale);
    state.row_max[r] = new_max;
    state.row_sum[r] *= correction[r];
  }
  return true;
}

/// Turns scores into exponentials, of exponents relative to `offsets`, times 2^`raise`, and adds them to `sums`.
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

/// Exponentials relative to the rows' maxima, which take in this tile.
template <class Scores, class Scale>
JIT_DEVICE void exponentiate(Scores& scores, SoftmaxState<Scores::rows>& state, const Scale& scale_log2,
                             float raise = 0) {
  exponentiate(scores, state.offset, scale_log2, state.row_sum, raise);
}

/// Exponentials relative to the rows' maxima, and sums of exponents.
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

/// The largest sum of a thread's exponentials of one row of a tile that are taken relative to the maximum of
/// earlier tiles: what they are relative to cancels when the row is normalized. fp16 ends at 65504. bf16 and
/// the accumulators of O end at 2^127: 2^87 is left for values, times keys.
template <class Element>
inline constexpr float overflow_limit = is_same<Element, fp16> ? 0x1p14f : 0x1p40f;

/// A thread looks for a key that dominates its row when the exponentials that it has of one tile are so many times
/// those that it has of all tiles before.
///
/// The lower, the fewer such keys escape, and the more often does chance call for a look in the second tile of a
/// row. On inputs with outliers the error of O is 1.04 times that with true maxima for 2, 1.05 for 3.
inline constexpr float sums_that_stand_out = 2.5f;

/// Whether a tile's exponentials, of which a thread has these `sums`, need another look in some row of the warp:
/// they are much more than all before, or too large, or their offset is: no key was seen before, which makes it infinite,
/// or the maximum is large.
template <class Element, int rows, class State>
JIT_DEVICE bool stands_out(const float (&sums)[rows], const float (&offsets)[rows], const State& state) {
  bool fits = true;
#pragma unroll
  for (int r = 0; r < rows; ++r) {  // false for NaN, too
    fits &= !(State::may_be_large && is_large(offsets[r])) &&
            sums[r] <= fminf(sums_that_stand_out * state.row_sum[r], overflow_limit<Element>);
  }
  return __any_sync(full_warp, !fits);
}

/// Whether they must be computed again, relative to a maximum that takes in this tile.
template <class Element, class State, int rows>
JIT_DEVICE bool is_overflow(const float (&sums)[rows], const float (&offsets)[rows]) {
  bool fits = true;
#pragma unroll
  for (int r = 0; r < rows; ++r)
    fits &= !(State::may_be_large && is_large(offsets[r])) && sums[r] <= overflow_limit<Element>;
  return __any_sync(full_warp, !fits);
}

/// Up to which exponentials relative to a row's maximum are at most what rescale_by_row lets stay, whichever of its four
/// lanes has them, of which one has summed up `sum` before. What rounding of offsets makes of exponents, at most 2^-7, is
/// left out.
template <class Element>
JIT_DEVICE float limit_of_stay(float sum) {
  constexpr float rounding = 0.98f;
  const float least = MmaLayout::reduce(sum, [](float x, float y) { return fminf(x, y); });
  return rounding * fminf(lazy_limit<Element>, fmaxf(least, 1.0f));
}

/// Whether no maximum of the warp's rows moves with rescale_by_row, as a tile's exponentials tell, which are in the sums of
/// `state` that were `before`: all of a lane together are at most the limit, or each of them is. Else it may not be known.
template <class Element, class Scores, class State>
JIT_DEVICE bool all_stay(const Scores& scores, const State& state, const float (&before)[Scores::rows],
                         const float (&offsets)[Scores::rows]) {
  float limits[Scores::rows];
  bool fit = true;
#pragma unroll
  for (int r = 0; r < Scores::rows; ++r) {  // false for NaN, too
    limits[r] = limit_of_stay<Element>(before[r]);
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

/// Where a key dominates its row, moves the warp's maxima up to the largest of a tile's exponentials, which are
/// relative to the maxima of earlier tiles, and brings exponentials and sums, which take in this tile, up to
/// them. Returns whether it did, and then `correction` is what the output must be multiplied by.
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

/// Maxima, exponentials and sums: scores become probabilities that become an `Element`, state and output follow.
template <Rescale rescale, class Element = bf16, class Scores, class Output, class State, class Scale>
JIT_DEVICE void online_softmax(Scores& scores, Output& output, State& state, const Scale& scale_log2) {
  float correction[Scores::rows];
  if (update_maximum<rescale, Element>(scores, state, scale_log2, correction)) output.scale_rows(correction);
  exponentiate(scores, state, scale_log2, probability_raise<Element>);
}

/// In place of 1 / sum for a row without keys. Sums are relative to the maximum or to less, so that all others
/// are at most 1, but for rounding.
inline constexpr float inverse_without_keys = 0x1p100f;

/// `packed` values of a row that has been multiplied by `inverse`; 0 for one without keys, which 0 · v is not when
/// a value that others see is not a number.
JIT_DEVICE unsigned keep_if_has_keys(unsigned packed, float inverse) {
  return inverse > 0.5f * inverse_without_keys ? 0 : packed;
}

JIT_DEVICE float keep_if_has_keys(float value, float inverse) {
  return __int_as_float(
      static_cast<int>(keep_if_has_keys(static_cast<unsigned>(__float_as_int(value)), inverse)));
}

/// The factor by which a row whose exponentials have this sum is multiplied in the end.
JIT_DEVICE float inverse_of_sum(float sum) { return rcp(sum != 0.0f ? sum : 1 / inverse_without_keys); }

/// The factor of the output of each row, and log(Σ exp(score)) in natural units, −inf for a row
/// without keys. `Layout` is that of the scores; sums are 2^`raise` of what they are the sums of.
template <class Layout, int rows, class Scale>
JIT_DEVICE void finish_rows(const SoftmaxState<rows>& state, const Scale& scale_log2, float (&inverse)[rows],
                            float (&lse)[rows], float raise = 0) {
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float sum = Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
    const bool has_keys = sum != 0.0f;
    inverse[r] = inverse_of_sum(sum);
    // Not in exponents of 2, in which the largest floats have no place.
    lse[r] = has_keys ? __fmaf_rn(finite_or_zero(state.row_max[r]), scale_of_row(scale_log2, r) * ln_2,
                                  (lg2(sum) - raise) * ln_2)  // mutate: LseOfRaisedSums
                      : negative_infinity();
  }
}

/// Takes one more key without a value, of score `sink` in natural units, into what `finish_rows` came to. `shares` are
/// what the other keys have of the sums.
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
