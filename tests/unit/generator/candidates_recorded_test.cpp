// The choice of a first run among configs that were timed on an H200, beside the choice of a longer search.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "generator/kernels/families.h"
#include "generator/tuning/candidates.h"
#include "generator/tuning/select.h"
#include "tests/support/recorded_config.h"
#include "tests/support/recorded_lines.h"

namespace jit {
namespace {

struct Timed {
  Candidate candidate;
  double us = 0;
};
using Problems = std::map<std::string, std::vector<Timed>>;

// The clean configs of a file, by problem, in the order of promise.
Problems read_timings(const std::string& name, const std::string& family) {
  std::istringstream file = testing::recorded_lines(name);
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  Problems problems;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.value("kind", "timing") != "timing" || json.value("serialized", false) ||
        json.value("local_bytes", 0) != 0)
      continue;
    const int head_dim = json["head_dim"];
    const AttentionSpec spec{.head_dim = head_dim,
                             .head_dim_v = json.value("head_dim_v", head_dim),
                             .mask = parse_mask(json["mask"].get<std::string>())};
    const ProblemShape shape{.batch = json["batch"],
                             .heads_q = json["heads"],
                             .seqlen_q = json["seqlen"],
                             .seqlen_kv = json["seqlen"]};
    std::string fields = json["config"];
    if (fields.starts_with("mainloop="))
      fields = fields.substr(fields.find(' '));  // what families were called then
    const std::optional<KernelConfig> config = testing::recorded_config("family=" + family + " " + fields);
    if (!config) continue;
    problems[fmt::format("{} s{}", to_string(spec), shape.seqlen_q)].push_back(
        {{{*config}, estimated_cycles({spec, limits}, shape, *config), model_error(spec, *config)},
         json["us"]});
  }
  for (auto& [problem, timings] : problems) {
    std::stable_sort(timings.begin(), timings.end(),
                     [](const Timed& a, const Timed& b) { return a.candidate.cycles < b.candidate.cycles; });
  }
  return problems;
}

std::vector<Candidate> candidates_of(const std::vector<Timed>& timings) {
  std::vector<Candidate> candidates;
  for (const Timed& timed : timings) candidates.push_back(timed.candidate);
  return candidates;
}

double time_of(const std::vector<Timed>& timings, const Candidate& candidate) {
  return std::find_if(timings.begin(), timings.end(),
                      [&](const Timed& timed) { return timed.candidate.configs == candidate.configs; })
      ->us;
}

// A search that measures `candidates`, as long as they may win: what it chooses, and how many it measured.
struct Outcome {
  double us = 0;
  int measured = 0;
};
Outcome search(const std::vector<Timed>& timings, const std::vector<Candidate>& candidates) {
  Prospects prospects(candidates);
  std::vector<double> times;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!prospects.may_win(i)) continue;
    times.push_back(time_of(timings, candidates[i]));
    prospects.add(i, times.back());
  }
  const double limit = *std::min_element(times.begin(), times.end()) * (1 + SelectionPolicy{}.tie_margin);
  return {*std::find_if(times.begin(), times.end(), [&](double us) { return us <= limit; }),
          static_cast<int>(times.size())};
}

// 24 candidates, two of those that are near-copies.
std::vector<Candidate> long_list(const std::vector<Timed>& timings) {
  std::vector<Candidate> picked;
  for (const Timed& timed : timings) {
    const auto is_copy = [&](const Candidate& other) {
      return are_near_copies(other.configs, timed.candidate.configs);
    };
    if (picked.size() == 24) break;
    if (std::count_if(picked.begin(), picked.end(), is_copy) < most_near_copies)
      picked.push_back(timed.candidate);
  }
  for (Candidate& candidate : picked) candidate.error = INFINITY;
  return picked;
}

// The candidates of the first run. Where forward_wgmma serves, forward_mma_sync competes for places.
std::vector<Candidate> short_list(const std::vector<Timed>& timings) {
  std::vector<Candidate> ranked = candidates_of(timings);
  const bool is_wgmma = std::holds_alternative<ForwardWgmma>(ranked[0].configs.front());
  if (is_wgmma) ranked.push_back({{ForwardMmaSync{}}, 2 * ranked.back().cycles});
  std::vector<Candidate> picked = promising(ranked);
  if (is_wgmma) std::erase_if(picked, [](const Candidate& candidate) { return candidate.family() == 0; });
  return picked;
}

struct Recording {
  const char* file;
  const char* family;
  std::size_t problems;
};

class CandidatesRecorded : public ::testing::TestWithParam<Recording> {};

TEST_P(CandidatesRecorded, LoseLittleToALongerSearch) {
  const Problems problems = read_timings(GetParam().file, GetParam().family);
  ASSERT_EQ(problems.size(), GetParam().problems);
  double sum = 0, worst = 1;
  int compiled = 0, measured = 0, most = 0;
  for (const auto& [problem, timings] : problems) {
    const std::vector<Candidate> few = short_list(timings);
    const Outcome outcome = search(timings, few);
    const Outcome longer = search(timings, long_list(timings));
    const double loss = outcome.us / longer.us;
    sum += std::log(loss);
    worst = std::max(worst, loss);
    compiled += static_cast<int>(few.size());
    measured += outcome.measured;
    most = std::max(most, outcome.measured);
    std::printf("%-36s %zu candidates, %d measured, %+.1f %%\n", problem.c_str(), few.size(),
                outcome.measured, (loss - 1) * 100);
  }
  const double count = static_cast<double>(problems.size());
  std::printf("slower by %.4f on the mean, %.3f at worst; %.1f candidates, %.1f measured, at most %d\n",
              std::exp(sum / count), worst, compiled / count, measured / count, most);
  EXPECT_LE(std::exp(sum / count), 1.005);
  EXPECT_LE(worst, 1.07);
  EXPECT_LE(most, 8);
}

INSTANTIATE_TEST_SUITE_P(
    H200, CandidatesRecorded,
    ::testing::Values(Recording{"2026-11-20-h200-search.jsonl", "forward_mma_sync", 10},
                      Recording{"2026-11-21-h200-hopper-configs.jsonl", "forward_wgmma", 60},
                      Recording{"2026-11-22-h200-hopper-configs.jsonl", "forward_wgmma", 45}),
    [](const ::testing::TestParamInfo<Recording>& info) {
      return "Of" + std::string(info.param.file, 4) + std::string(info.param.file + 5, 2) +
             std::string(info.param.file + 8, 2);
    });

}  // namespace
}  // namespace jit
