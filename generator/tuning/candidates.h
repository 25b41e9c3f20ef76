// Selects the configs that the tuner measures on the first run, and stops when the others cannot win.
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

/// A list of configs for a call, and its clock cycles as the cost models predict. Predictions are comparable
/// among candidates whose first kernels have the same family and form; across families they are less
/// reliable.
struct Candidate {
  PlanConfigs configs;
  double cycles = 0;
  double error =
      fitted_model_error;  ///< factor by which the models may misjudge it relative to other candidates

  std::size_t family() const { return family_form(configs.front()); }
};

/// The configs worth measuring, by rank: a few that are within the model's error of the best of their family,
/// without near-copies, and without families whose best is predicted to take twice as long as the first
/// (or, of models that may err by more, as long as both may err).
std::vector<Candidate> promising(std::span<const Candidate> ranked);

/// The promising configs of a call with one kernel, the cost model's choice first.
std::vector<Candidate> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                            const DeviceLimits& limits);

/// All legal configs by rank.
std::vector<Candidate> all_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                      const DeviceLimits& limits);

/// All pairs of a first and a second kernel, ranked by the sum of their cycles.
std::vector<Candidate> pairs(std::span<const Candidate> first, std::span<const Candidate> second);

/// Which candidates may win, as far as the leaders tell: the first candidates of each family by rank. A leader's time
/// calibrates its family's predicted cycles; a candidate cannot win if its calibrated prediction exceeds the fastest
/// leader's time by more than its models' error. So what is dropped depends on no order in which candidates are
/// compiled or timed. Thread safe.
class Prospects {
 public:
  explicit Prospects(std::span<const Candidate> candidates);

  /// Records the time of candidate `i`, in any unit that all share.
  void add(std::size_t i, double time);
  /// Records that candidate `i` has no time. All others of a family whose leader has none may win.
  void add_failure(std::size_t i);

  /// Whether it may win; true of each candidate until all leaders are recorded.
  bool may_win(std::size_t i) const;

 private:
  struct Leader {
    std::size_t candidate;
    bool is_known = false;
    double time = 0;  // 0: it has none
  };

  Leader* leader_of(std::size_t i);

  std::span<const Candidate> candidates_;
  mutable std::mutex mutex_;
  std::vector<Leader> leaders_;
};

}  // namespace jit
