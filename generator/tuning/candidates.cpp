#include "generator/tuning/candidates.h"

#include <algorithm>

namespace jit {
namespace {

// As many as compile and measure well within the default time on 16 cores.
constexpr std::size_t most_candidates = 24;
constexpr std::ptrdiff_t most_of_a_mainloop = 18;

}  // namespace

std::vector<KernelConfig> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                               const DeviceLimits& limits) {
  // The cost models of the two mainloops know little of each other.
  const bool has_both = limits.arch == Arch{9, 0, 'a'} && shape.tma;
  std::vector<KernelConfig> picked;
  const auto count = [&](auto predicate) { return std::count_if(picked.begin(), picked.end(), predicate); };
  for (const KernelConfig& config : ranked_configs(spec, shape, limits)) {
    const auto same_mainloop = [&](const KernelConfig& other) { return config.mainloop == other.mainloop; };
    const auto near_copy = [&](const KernelConfig& other) { return are_near_copies(config, other); };
    if (picked.size() == most_candidates) break;
    if (count(near_copy) == most_near_copies) continue;
    if (has_both && count(same_mainloop) == most_of_a_mainloop) continue;
    picked.push_back(config);
  }
  return picked;
}

}  // namespace jit
