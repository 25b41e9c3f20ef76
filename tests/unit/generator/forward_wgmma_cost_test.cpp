// The cost model of forward_wgmma against timings: those that it was fitted to, and those of the present
// kernels.
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
#include "generator/kernels/search.h"
#include "tests/support/recorded_config.h"
#include "tests/support/recorded_lines.h"

namespace jit {
namespace {

struct Choice {
  double estimate = HUGE_VAL;
  double chosen_us = 0;
  double fastest_us = HUGE_VAL;
};

class ForwardWgmmaCost : public ::testing::TestWithParam<const char*> {};

TEST_P(ForwardWgmmaCost, ChoosesNearTheFastestThatWasTimed) {
  std::istringstream file = testing::recorded_lines(GetParam());
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
    // The family's name at the time of the recording.
    const std::string fields = json["config"].get<std::string>().substr(std::string("mainloop=wgmma").size());
    const std::optional<KernelConfig> config = testing::recorded_config("family=forward_wgmma" + fields);
    if (!config) continue;
    Choice& choice = choices[fmt::format("{} s{}", to_string(spec), shape.seqlen_q)];
    const double estimate = estimated_cycles({spec, limits}, shape, *config), us = json["us"];
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
  EXPECT_GT(timings, 300);
  EXPECT_LT(mean, 1.03);
}

INSTANTIATE_TEST_SUITE_P(H200, ForwardWgmmaCost,
                         ::testing::Values("2026-11-21-h200-hopper-configs.jsonl",
                                           "2026-11-22-h200-hopper-configs.jsonl"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return "Of" + std::string(info.param, 4) + std::string(info.param + 5, 2) +
                                  std::string(info.param + 8, 2);
                         });

// On an H200, batch 4, 16 heads, 8,192 tokens, 128 × 128 is a fifth faster than 192 × 80 (docs/records/notebook.md). The first tile
// of keys, which rows of all consumers must see some of, decides.
TEST(ForwardWgmmaChoice, WindowsAndTheirTextsTakeTilesThatFitTheirEnds) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  const ProblemShape shape{.batch = 4, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192};
  const Mask text = mask::text({.name = "near",
                                .body = "return k <= q && q - k <= window;",
                                .constants = {{"window", std::int64_t{1024}}}});
  for (const Mask& mask : {parse_mask("window(1024, 0)"), parse_mask("causal && window(1024, 0)"), text}) {
    const AttentionSpec spec{.mask = mask};
    const KernelConfig first = ranked_configs(spec, shape, limits).front();
    ASSERT_TRUE(std::holds_alternative<ForwardWgmma>(first)) << to_string(first);
    EXPECT_EQ(std::get<ForwardWgmma>(first).tile_q, 128) << to_string(spec);
    EXPECT_EQ(std::get<ForwardWgmma>(first).tile_kv, 128) << to_string(spec);
  }
  // Sequences that only the device knows the lengths of are as long as the shape says on the average.
  AttentionSpec prefill{.gqa_ratio = 4,
                        .sequences_q = SequenceKind::varlen,
                        .sequences_kv = SequenceKind::paged,
                        .page_size = 16,
                        .kv_dtype = DType::fp8_e4m3};
  const ProblemShape lengths{
      .batch = 4, .heads_q = 32, .seqlen_q = 2048, .seqlen_kv = 8192, .has_device_lengths = true};
  const auto first_that_converts = [&] {
    for (const KernelConfig& config : untuned_order(prefill, lengths, limits)) {
      if (!std::get<ForwardWgmma>(config).upcast_ahead) return to_string(config);
    }
    return std::string();
  };
  const std::string all = first_that_converts();
  prefill.mask = mask::causal();
  EXPECT_EQ(first_that_converts(), all);
  const KernelConfig causal = ranked_configs({.mask = mask::causal()}, shape, limits).front();
  EXPECT_EQ(std::get<ForwardWgmma>(causal).tile_q, 192);
}

// On an H200 128 × 128 is faster than 128 × 96 by 3 to 8 % of all lengths (docs/records/notebook.md), although it has room for one
// buffer of Q.
TEST(ForwardWgmmaChoice, Fp8OfHeadDim256TakesTilesOf128KeysAtAllLengths) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  for (const Mask& mask : {mask::none(), mask::causal()}) {
    for (const std::int64_t seqlen : {1024, 2048, 4096, 8192, 16384}) {
      const ProblemShape shape{
          .batch = 16384 / seqlen, .heads_q = 8, .seqlen_q = seqlen, .seqlen_kv = seqlen};
      const AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = 256, .mask = mask};
      const KernelConfig first = untuned_order(spec, shape, limits).front();
      ASSERT_TRUE(std::holds_alternative<ForwardWgmma>(first)) << to_string(first);
      EXPECT_EQ(std::get<ForwardWgmma>(first).tile_q, 128) << to_string(spec) << ' ' << seqlen;
      EXPECT_EQ(std::get<ForwardWgmma>(first).tile_kv, 128) << to_string(spec) << ' ' << seqlen;
    }
  }
}

// Drawing ahead is worth its launch where there are many scores, and draws what queries see.
TEST(ForwardWgmmaCost, DropoutIsDrawnAheadOfManyScores) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  const ForwardWgmma ahead{
      .tile_q = 128, .tile_kv = 128, .stages_k = 2, .stages_v = 2, .dropout_mask_ahead = true};
  ForwardWgmma beside = ahead;
  beside.dropout_mask_ahead = false;
  for (const Mask& mask : {mask::none(), mask::causal()}) {
    const AttentionSpec spec{.dropout = true, .mask = mask};
    const auto cycles = [&](const ForwardWgmma& config, std::int64_t tokens) {
      return estimated_cycles({spec, limits},
                              {.batch = 2, .heads_q = 16, .seqlen_q = tokens, .seqlen_kv = tokens}, config);
    };
    EXPECT_LT(cycles(ahead, 8192), cycles(beside, 8192)) << to_string(spec);
    EXPECT_GT(cycles(ahead, 64), cycles(beside, 64)) << to_string(spec);
  }
  const ProblemShape square{.batch = 2, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192};
  EXPECT_NEAR(drawing_clocks(square, 0.5, 132) / drawing_clocks(square, 1, 132), 0.5, 0.01);
}

}  // namespace
}  // namespace jit
