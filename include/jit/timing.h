/// @file
/// Times of work on a GPU.
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
