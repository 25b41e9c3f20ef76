#include "generator/tuning/candidates.h"

#include <algorithm>
#include <limits>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

// Number of compiles that run concurrently on 16 cores, with those of reference kernels.
constexpr std::ptrdiff_t most_candidates = 8;
// Predictions of different families are hard to compare: if two compete, both are measured.
constexpr std::ptrdiff_t most_of_the_first_family = 5, most_of_another = 2;
// A family that is predicted to take so many times as long as the first one is not measured, hard as that is to compare;
// nor one that would lose if both models erred as much as they may.
constexpr double out_of_reach = 2;

}  // namespace

std::vector<Candidate> promising(std::span<const Candidate> ranked) {
  const bool compete = std::any_of(ranked.begin(), ranked.end(), [&](const Candidate& candidate) {
    return candidate.family() != ranked.front().family();
  });
  std::vector<Candidate> picked;
  for (const Candidate& candidate : ranked) {
    const auto of_its_family = [&](const Candidate& other) { return candidate.family() == other.family(); };
    const auto is_copy = [&](const Candidate& other) {
      return are_near_copies(candidate.configs, other.configs);
    };
    const auto first = std::find_if(ranked.begin(), ranked.end(), of_its_family);
    if (std::ssize(picked) == most_candidates) break;
    if (candidate.cycles > candidate.error * first->cycles) continue;
    const double reach = std::max(out_of_reach, candidate.error * ranked.front().error);
    if (first->cycles > reach * ranked.front().cycles) continue;
    if (std::any_of(picked.begin(), picked.end(), is_copy)) continue;
    const std::ptrdiff_t share =
        candidate.family() == ranked.front().family() ? most_of_the_first_family : most_of_another;
    if (compete && std::count_if(picked.begin(), picked.end(), of_its_family) == share) continue;
    picked.push_back(candidate);
  }
  return picked;
}

std::vector<Candidate> all_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                      const DeviceLimits& limits) {
  std::vector<Candidate> candidates;
  for (const KernelConfig& config : ranked_configs(spec, shape, limits))
    candidates.push_back(
        {{config}, estimated_cycles({spec, limits}, shape, config), model_error(spec, config)});
  return candidates;
}

std::vector<Candidate> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                            const DeviceLimits& limits) {
  return promising(all_candidates(spec, shape, limits));
}

std::vector<Candidate> pairs(std::span<const Candidate> first, std::span<const Candidate> second) {
  std::vector<Candidate> both;
  for (const Candidate& a : first) {
    for (const Candidate& b : second) {
      Candidate& pair = both.emplace_back(a);
      pair.configs.insert(pair.configs.end(), b.configs.begin(), b.configs.end());
      pair.cycles += b.cycles;
      pair.error = std::max(a.error, b.error);
    }
  }
  std::stable_sort(both.begin(), both.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
  return both;
}

Prospects::Prospects(std::span<const Candidate> candidates) : candidates_(candidates) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (std::ranges::none_of(leaders_, [&](const Leader& leader) {
          return candidates[leader.candidate].family() == candidates[i].family();
        }))
      leaders_.push_back({.candidate = i});
  }
}

Prospects::Leader* Prospects::leader_of(std::size_t i) {
  const auto at = std::ranges::find(leaders_, i, &Leader::candidate);
  return at == leaders_.end() ? nullptr : &*at;
}

void Prospects::add(std::size_t i, double time) {
  const std::lock_guard lock(mutex_);
  if (Leader* const leader = leader_of(i)) *leader = {i, true, time};
}

void Prospects::add_failure(std::size_t i) { add(i, 0); }

bool Prospects::may_win(std::size_t i) const {
  const std::lock_guard lock(mutex_);
  double fastest = std::numeric_limits<double>::infinity(), expected = 0;
  for (const Leader& leader : leaders_) {
    if (!leader.is_known || leader.candidate == i) return true;
    if (leader.time > 0) fastest = std::min(fastest, leader.time);
    const Candidate& own = candidates_[leader.candidate];
    if (own.family() == candidates_[i].family()) expected = candidates_[i].cycles * leader.time / own.cycles;
  }
  return expected <= candidates_[i].error * fastest;
}

}  // namespace jit
