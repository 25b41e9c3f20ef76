// The exchange between blocks that keep rows: words that contain the number of the launch. A reader polls a word until it is of
// this launch.
#pragma once

#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"
#include "quantize/statistics.cuh"
#include "quantize_resident/plan.cuh"

namespace jit {

/// Numbers of launches: each takes as many as its window has iterations, from `number` on. When they come to an end,
/// the last block sets all words back, once in some hours of launches without a pause.
inline constexpr unsigned resident_last_number = 0x7fff0000;  // mutate: NumbersBeginAnewSoon

/// Where one of q, k and v leaves its words.
template <class Config, QkvTensor which>
class ResidentExchange {
  using Plan = QuantizePlan<Config, which>;

 public:
  static constexpr bool has_mean = Plan::is_centered, has_scale = Plan::has_extremes;
  /// Statistics of a column of a piece of work, in so many words: of 16-bit inputs that are looked at as they are the
  /// largest and the least number share one.
  static constexpr int count = maximum(1, ColumnStatistics<Plan>::count);
  static constexpr bool has_pairs = count == 3 && sizeof(typename Config::Element) == 2 &&
                                    !Plan::is_rotated && !Plan::is_normalized && !Plan::has_rotary;
  static constexpr int statistic_words = has_pairs ? 2 : count;
  /// Numbers of a column that are known of a unit: its mean, its largest magnitude.
  static constexpr int result_numbers = (has_mean ? 1 : 0) + (has_scale ? 1 : 0);

  JIT_DEVICE ResidentExchange(const ResidentParams& params, unsigned number)
      : params_(params), own_(params.tensors[static_cast<int>(which)]), number_(number) {}

  static JIT_DEVICE float number_of(ResidentWord word) {
    return __int_as_float(static_cast<int>(static_cast<unsigned>(word)));
  }

  JIT_DEVICE void write_magnitude(int unit, int item, float x) const {
    write(magnitude(unit, item), x, number_);
  }
  /// Whether it is there, and what it is.
  JIT_DEVICE bool find_magnitude(int unit, int item, float& x) const {
    return find(magnitude(unit, item), number_, x);
  }

  JIT_DEVICE void write_statistics(int unit, int item, int column, const float (&x)[count]) const {
    using Element = typename Config::Element;
    ResidentWord* const words = statistics(unit, item) + column;
    const unsigned number = number_of_iteration(unit);
    if constexpr (has_pairs) {
      write(words, x[0], number);
      write(words + Plan::columns, __int_as_float(static_cast<int>(pack<Element>(x[1], x[2]))), number);
    } else {
#pragma unroll
      for (int which = 0; which < count; ++which) write(words + which * Plan::columns, x[which], number);
    }
  }
  JIT_DEVICE bool find_statistics(int unit, int item, int column, float (&x)[count]) const {
    using Element = typename Config::Element;
    const ResidentWord* const words = statistics(unit, item) + column;
    const unsigned number = number_of_iteration(unit);
    bool is_there = find(words, number, x[0]);
    if constexpr (has_pairs) {
      float both, extremes[2];
      is_there &= find(words + Plan::columns, number, both);
      const unsigned of_both[1] = {static_cast<unsigned>(__float_as_int(both))};
      upcast_words<Element>(of_both, extremes);
      x[1] = extremes[0], x[2] = extremes[1];
    } else {
#pragma unroll
      for (int which = 1; which < count; ++which)
        is_there &= find(words + which * Plan::columns, number, x[which]);
    }
    return is_there;
  }
  /// Waits for the word that is written last.
  JIT_DEVICE void wait_for_statistics(int unit, int item, int column) const {
    float x;
    while (!find(statistics(unit, item) + (statistic_words - 1) * Plan::columns + column,
                 number_of_iteration(unit), x)) {
    }
  }

  /// `at` is a column of one of the result_numbers.
  JIT_DEVICE void write_result(int unit, int at, float x) const { write(result(unit, at), x, number_); }
  JIT_DEVICE bool find_result(int unit, int at, float& x) const { return find(result(unit, at), number_, x); }

 private:
  static JIT_DEVICE void write(ResidentWord* word, float x, unsigned number) {
    store_relaxed(word, static_cast<ResidentWord>(number) << 32 | static_cast<unsigned>(__float_as_int(x)));
  }
  static JIT_DEVICE bool find(const ResidentWord* word, unsigned number, float& x) {
    const ResidentWord found = load_relaxed(word);
    x = number_of(found);
    return static_cast<unsigned>(found >> 32) == number;  // mutate: WordsOfAnyLaunch
  }

  JIT_DEVICE unsigned number_of_iteration(int unit) const {
    // mutate: IterationsOfTheWindowHaveOneNumber
    return number_ + static_cast<unsigned>(unit / params_.window);
  }
  JIT_DEVICE ResidentWord* magnitude(int unit, int item) const {
    return own_.found + static_cast<long long>(unit) * Plan::of(params_.all).items + item;
  }
  JIT_DEVICE ResidentWord* statistics(int unit, int item) const {
    const long long place =
        static_cast<long long>(unit % params_.window) * Plan::of(params_.all).items + item;
    return own_.found + place * (statistic_words * Plan::columns);
  }
  JIT_DEVICE ResidentWord* result(int unit, int at) const {
    return own_.results + static_cast<long long>(unit) * result_numbers * Plan::columns + at;
  }

  const ResidentParams& params_;
  const ResidentTensor& own_;
  unsigned number_;
};

/// The number of this launch. By any thread, before the block is done.
JIT_DEVICE unsigned resident_number(const ResidentParams& params) {
  return load_relaxed(params.control + 2) + 1;
}

/// A ticket for a piece of work: of the first ones each block has one without drawing it.
JIT_DEVICE int draw_resident_ticket(const ResidentParams& params) {
  return static_cast<int>(gridDim.x + atomic_add_relaxed(params.control, 1) + 1);
}

/// When the whole block is done: the last one of all makes the counters what they were, and says which number comes
/// next.
JIT_DEVICE void end_resident_launch(const ResidentParams& params, unsigned number, int& is_last) {
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomic_add_acq_rel(params.control + 1, 1) + 2 == gridDim.x;
  __syncthreads();
  if (is_last == 0) return;
  const unsigned last = number + static_cast<unsigned>(params.iterations) - 1;
  const bool begins_anew = last >= resident_last_number;  // mutate: WordsStayWhereNumbersBeginAnew
  if (begins_anew) {
    for (int at = static_cast<int>(threadIdx.x); at < params.word_count; at += resident_block_threads)
      store_relaxed(params.words + at, ~ResidentWord{0});
  }
  if (threadIdx.x != 0) return;
  store_relaxed(params.control, ~0u);  // mutate: ResidentTicketsLeftBehind
  store_relaxed(params.control + 1, ~0u);
  store_relaxed(params.control + 2, begins_anew ? ~0u : last);  // mutate: EachLaunchHasOneNumber
}

}  // namespace jit
