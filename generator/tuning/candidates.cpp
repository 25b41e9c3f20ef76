#include "generator/tuning/candidates.h"

#include <algorithm>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

// As many as compile and measure well within the default time on 16 cores.
constexpr std::size_t most_candidates = 24;
constexpr std::ptrdiff_t most_of_a_family = 18;

}  // namespace

std::vector<KernelConfig> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                               const DeviceLimits& limits) {
  const std::vector<KernelConfig> ranked = ranked_configs(spec, shape, limits);
  const auto same_family = [](const KernelConfig& a) {
    return [&a](const KernelConfig& b) { return a.index() == b.index(); };
  };
  // The cost models of two families know little of each other.
  const bool compete = !std::all_of(ranked.begin(), ranked.end(), same_family(ranked.front()));
  std::vector<KernelConfig> picked;
  const auto count = [&](auto predicate) { return std::count_if(picked.begin(), picked.end(), predicate); };
  for (const KernelConfig& config : ranked) {
    const auto near_copy = [&](const KernelConfig& other) { return are_near_copies(config, other); };
    if (picked.size() == most_candidates) break;
    if (count(near_copy) == most_near_copies) continue;
    if (compete && count(same_family(config)) == most_of_a_family) continue;
    picked.push_back(config);
  }
  return picked;
}

}  // namespace jit
