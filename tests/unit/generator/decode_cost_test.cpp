// The cost models of the families that split keys against timings of decoding on an H200: what they choose together.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "generator/kernels/families.h"
#include "tests/support/recorded_config.h"
#include "tests/support/recorded_lines.h"

namespace jit {
namespace {

struct DecodeChoice {
  double estimate = HUGE_VAL;
  double chosen_us = 0;
  double fastest_us = HUGE_VAL;
  KernelConfig config;
};

TEST(DecodeCost, ChoosesNearTheFastestThatWasTimed) {
  std::istringstream file = testing::recorded_lines("2026-11-24-h200-decode-configs.jsonl");
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  std::map<std::string, DecodeChoice> choices;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (!json.contains("config") || json["spill_bytes"] != 0) continue;
    const AttentionSpec spec{.head_dim = json["head_dim"], .gqa_ratio = json["gqa_ratio"]};
    const ProblemShape shape{
        .batch = json["batch"], .heads_q = json["heads"], .seqlen_q = 1, .seqlen_kv = json["keys"]};
    std::string fields = json["config"];
    for (const std::string_view retired : {" rescale=lazy", " order=free", " order=ping_pong"}) {
      if (const std::size_t at = fields.find(retired); at != std::string::npos)
        fields.erase(at, retired.size());
    }
    const std::optional<KernelConfig> config = testing::recorded_config(fields);
    ASSERT_TRUE(config) << fields;
    const double estimate = estimated_cycles({spec, limits}, shape, *config), us = json["median_us"];
    const std::string cell =
        fmt::format("run {} b{} h{}/{} kv{} d{}", json["run"].get<int>(), shape.batch, shape.heads_q,
                    shape.heads_q / spec.gqa_ratio, shape.seqlen_kv, spec.head_dim);
    DecodeChoice& choice = choices[cell];
    if (estimate < choice.estimate) choice = {estimate, us, choice.fastest_us, *config};
    choice.fastest_us = std::min(choice.fastest_us, us);
  }
  double sum = 0, worst = 1;
  for (const auto& [cell, choice] : choices) {
    const double loss = choice.chosen_us / choice.fastest_us;
    sum += std::log(loss);
    worst = std::max(worst, loss);
    std::printf("%-32s %6.1f µs, fastest %6.1f, %.3f: %s\n", cell.c_str(), choice.chosen_us,
                choice.fastest_us, loss, to_string(choice.config).c_str());
  }
  const double mean = std::exp(sum / static_cast<double>(choices.size()));
  std::printf("%zu cells: slower than the fastest by %.3f on the mean, %.3f at worst\n", choices.size(), mean,
              worst);
  EXPECT_EQ(choices.size(), 25);
  EXPECT_LT(mean, 1.015);
  EXPECT_LT(worst, 1.11);
}

}  // namespace
}  // namespace jit
