#include "generator/candidates.h"

#include <algorithm>

namespace jit {
namespace {

// As many as compile and measure well within the default time on 16 cores.
constexpr std::ptrdiff_t fitted_candidates = 24;
constexpr std::ptrdiff_t fitted_candidates_of_a_mainloop = 18;
constexpr std::ptrdiff_t unfitted_candidates_of_a_kind = 2;

// What makes a config one that the model is not fitted to.
bool are_of_a_kind(const KernelConfig& a, const KernelConfig& b) {
  return a.direct_o == b.direct_o && (a.polynomial_exp2 > 0) == (b.polynomial_exp2 > 0);
}

}  // namespace

std::vector<KernelConfig> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                               const DeviceLimits& limits) {
  // The cost models of the two mainloops know little of each other.
  const bool has_both = limits.arch == Arch{9, 0, 'a'} && shape.tma;
  std::vector<KernelConfig> picked;
  const auto count = [&](auto predicate) { return std::count_if(picked.begin(), picked.end(), predicate); };
  std::ptrdiff_t fitted = 0;
  for (const KernelConfig& config : ranked_configs(spec, shape, limits)) {
    const auto of_a_kind = [&](const KernelConfig& other) { return are_of_a_kind(config, other); };
    const auto same_mainloop = [&](const KernelConfig& other) { return config.mainloop == other.mainloop; };
    const auto near_copy = [&](const KernelConfig& other) {
      return are_of_a_kind(config, other) && are_near_copies(config, other);
    };
    if (is_fitted(config)) {
      if (fitted == fitted_candidates || count(near_copy) == most_near_copies) continue;
      if (has_both && count(same_mainloop) == fitted_candidates_of_a_mainloop) continue;
      ++fitted;
    } else if (count(of_a_kind) == unfitted_candidates_of_a_kind || count(near_copy) > 0) {
      continue;
    }
    picked.push_back(config);
  }
  return picked;
}

}  // namespace jit
