#include "generator/tuning/select.h"

#include <algorithm>
#include <limits>

namespace jit {
namespace {

double median(std::vector<double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace

Selection select_fastest(std::size_t count, const std::function<double(std::size_t)>& measure,
                         const std::function<double()>& elapsed, const SelectionPolicy& policy) {
  std::vector<std::vector<double>> samples(count);
  std::vector<bool> in(count, true);
  bool out_of_time = false;

  const auto best_median = [&] {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < count; ++i) {
      if (in[i]) best = std::min(best, median(samples[i]));
    }
    return best;
  };
  const auto drop_slower_than = [&](double factor) {
    const double limit = best_median() * factor;
    for (std::size_t i = 1; i < count; ++i) {
      if (in[i] && !samples[i].empty() && median(samples[i]) > limit) in[i] = false;
    }
  };
  const auto has_sample = [&] {
    return std::ranges::any_of(samples, [](const auto& list) { return !list.empty(); });
  };
  // Measures each candidate once per round, so that clock drift affects all of them alike.
  const auto run_rounds = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < count; ++i) {
        if (!in[i]) continue;
        if (elapsed() > policy.seconds && has_sample()) {
          out_of_time = true;
          return;
        }
        const double sample = measure(i);
        if (sample < 0) {
          in[i] = false;
          samples[i].clear();
        } else {
          samples[i].push_back(sample);
        }
      }
      drop_slower_than(policy.hopeless);
    }
  };

  run_rounds(policy.opening_rounds);
  drop_slower_than(policy.behind);
  if (!out_of_time) {
    // Only final rounds count: early samples come from a cooler chip.
    std::vector<std::vector<double>> opening = samples;
    for (auto& list : samples) list.clear();
    run_rounds(policy.final_rounds);
    for (std::size_t i = 0; i < count; ++i) {
      if (samples[i].empty()) samples[i] = std::move(opening[i]);
    }
  }

  Selection selection;
  selection.out_of_time = out_of_time;
  for (const auto& list : samples) {
    selection.timings.push_back(
        {.median = list.empty() ? 0 : median(list), .samples = static_cast<int>(list.size())});
  }
  const double limit = best_median() * (1 + policy.tie_margin);
  for (std::size_t i = 0; i < count; ++i) {
    if (in[i] && !samples[i].empty() && selection.timings[i].median <= limit) {
      selection.chosen = i;
      break;
    }
  }
  return selection;
}

}  // namespace jit
