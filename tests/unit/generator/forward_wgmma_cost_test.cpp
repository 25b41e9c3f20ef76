// The cost model of forward_wgmma against timings: those that it was fitted to, and those of the present
// kernels.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "generator/kernels/families.h"

namespace jit {
namespace {

struct Choice {
  double estimate = HUGE_VAL;
  double chosen_us = 0;
  double fastest_us = HUGE_VAL;
};

class ForwardWgmmaCost : public ::testing::TestWithParam<const char*> {};

TEST_P(ForwardWgmmaCost, ChoosesNearTheFastestThatWasTimed) {
  std::ifstream file(std::string(JIT_ATTENTION_SOURCE_DIR) + "/bench/results/" + GetParam());
  ASSERT_TRUE(file);
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  std::map<std::string, Choice> choices;
  int timings = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["kind"] != "timing" || json["serialized"] || json["local_bytes"] != 0) continue;
    const AttentionSpec spec{.head_dim = json["head_dim"],
                             .head_dim_v = json["head_dim_v"],
                             .mask = parse_mask(json["mask"].get<std::string>())};
    const ProblemShape shape{.batch = json["batch"],
                             .heads_q = json["heads"],
                             .seqlen_q = json["seqlen"],
                             .seqlen_kv = json["seqlen"]};
    // What the family was called then.
    const std::string fields = json["config"].get<std::string>().substr(std::string("mainloop=wgmma").size());
    const KernelConfig config = parse_config("family=forward_wgmma" + fields);
    Choice& choice = choices[fmt::format("{} s{}", to_string(spec), shape.seqlen_q)];
    const double estimate = estimated_cycles({spec, limits}, shape, config), us = json["us"];
    if (estimate < choice.estimate) {
      choice.estimate = estimate;
      choice.chosen_us = us;
    }
    choice.fastest_us = std::min(choice.fastest_us, us);
    ++timings;
  }
  double sum = 0, worst = 1;
  for (const auto& [problem, choice] : choices) {
    const double loss = choice.chosen_us / choice.fastest_us;
    sum += std::log(loss);
    worst = std::max(worst, loss);
    EXPECT_LT(loss, 1.2) << problem;
  }
  const double mean = std::exp(sum / static_cast<double>(choices.size()));
  std::printf("%d timings of %zu problems: slower than the fastest by %.3f on the mean, %.3f at worst\n",
              timings, choices.size(), mean, worst);
  EXPECT_GT(timings, 500);
  EXPECT_LT(mean, 1.03);
}

INSTANTIATE_TEST_SUITE_P(H200, ForwardWgmmaCost,
                         ::testing::Values("2026-11-21-h200-hopper-configs.jsonl",
                                           "2026-11-22-h200-hopper-configs.jsonl"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return "Of" + std::string(info.param, 4) + std::string(info.param + 5, 2) +
                                  std::string(info.param + 8, 2);
                         });

}  // namespace
}  // namespace jit
