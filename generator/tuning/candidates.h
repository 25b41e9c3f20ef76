// Which configs the tuner measures on the first run, and when it has seen enough of them.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include <jit/tuning.h>

#include "generator/kernels/device_limits.h"
#include "generator/kernels/problem_shape.h"

namespace jit {

/// By so much may a cost model misjudge one config beside another of its family. Of the configs that were timed on an
/// H200 (tests/unit/generator/candidates_recorded_test.cpp), those that are predicted further behind the first are
/// worth less than half a percent together.
inline constexpr double model_error = 1.15;

/// A config and the clock cycles that its family's cost model expects.
struct Candidate {
  KernelConfig config;
  double cycles = 0;
};

/// Of configs in the order of promise, those worth measuring: within the model's error of the first of their family,
/// one of those that are near-copies of another, and few.
std::vector<Candidate> promising(std::span<const Candidate> ranked);

/// The promising configs of a problem, the cost model's choice first.
std::vector<Candidate> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                            const DeviceLimits& limits);

/// All legal configs in the order of promise.
std::vector<Candidate> all_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                      const DeviceLimits& limits);

/// What is left to win while candidates are measured, the most promising first. A family's first timing tells what a
/// predicted cycle takes; a candidate that is predicted further above the fastest timing than the model's error allows
/// cannot win any more. Thread safe.
class Prospects {
 public:
  /// `error` as model_error; infinity: every candidate may win.
  Prospects(std::span<const Candidate> candidates, double error);

  /// Candidate `i` took this long, in any unit, the same for all.
  void add(std::size_t i, double time);

  bool may_win(std::size_t i) const;

 private:
  struct Scale {
    std::size_t family;
    double time_per_cycle;
  };

  std::span<const Candidate> candidates_;
  double error_;
  mutable std::mutex mutex_;
  std::vector<Scale> scales_;  // of families that were timed
  double fastest_ = 0;         // 0: nothing was
};

}  // namespace jit
