/// @file
/// Times of work on a GPU.
///
/// @code
/// const jit::Timing timing = jit::summarize({12.0f, 10.0f, 11.0f});
/// assert(timing.median_us == 11 && timing.min_us == 10);
/// @endcode
#pragma once

#include <vector>

namespace jit {

/// Times of repetitions of the same work, and their statistics.
struct Timing {
  double median_us = 0;           ///< microseconds
  double min_us = 0;              ///< microseconds
  double spread = 0;              ///< interquartile range over median
  std::vector<float> samples_us;  ///< microseconds, in the order of measurement
};

/// The figures of a Timing from its samples; all zero without samples.
Timing summarize(std::vector<float> samples_us);

}  // namespace jit
