// Which configs the tuner measures on the first run, and when it has seen enough of them.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include <jit/tuning.h>

#include "generator/kernels/device_limits.h"
#include "generator/kernels/families.h"
#include "generator/kernels/family.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// A list of configs that a call may run, and the clock cycles that its families' cost models expect.
/// Candidates whose first kernels are of one family, and in one of its forms, are compared by that; of others
/// the models know little.
struct Candidate {
  PlanConfigs configs;
  double cycles = 0;
  double error =
      fitted_model_error;  ///< by so much, as a factor, the models may misjudge it beside the others

  std::size_t family() const { return family_form(configs.front()); }
};

/// The configs worth measuring, of those in the order of promise: within the model's error of the first of
/// their family, one of those that are near-copies of another, and few.
std::vector<Candidate> promising(std::span<const Candidate> ranked);

/// The promising configs of calls of one kernel, the cost model's choice first.
std::vector<Candidate> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                            const DeviceLimits& limits);

/// All legal configs in the order of promise.
std::vector<Candidate> all_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                      const DeviceLimits& limits);

/// Calls of two kernels, one after the other, whose cycles add up: each of the first beside each of the second, in the
/// order of promise.
std::vector<Candidate> pairs(std::span<const Candidate> first, std::span<const Candidate> second);

/// The prospects of candidates while others are measured, the most promising first. A family's first timing
/// tells what a predicted cycle takes; a candidate that is predicted further above the fastest timing than
/// its models' error allows cannot win any more. Thread safe.
class Prospects {
 public:
  explicit Prospects(std::span<const Candidate> candidates);

  /// Candidate `i` took this long, in any unit, the same for all.
  void add(std::size_t i, double time);

  bool may_win(std::size_t i) const;

 private:
  struct Scale {
    std::size_t family;
    double time_per_cycle;
  };

  std::span<const Candidate> candidates_;
  mutable std::mutex mutex_;
  std::vector<Scale> scales_;  // of families that were timed
  double fastest_ = 0;         // 0: nothing was
};

}  // namespace jit
