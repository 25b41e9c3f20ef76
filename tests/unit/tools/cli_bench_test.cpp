// jit-attention bench: which kernels it times, and what it says of them. Without NVRTC and without a GPU.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/build/image.h"
#include "generator/context/access.h"
#include "tests/support/cli_testing.h"
#include "tools/jit_attention/bench_rows.h"
#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

using jit::testing::expect_bad_input;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const DeviceInfo sm_90{.name = "some GPU",
                       .arch = {9, 0},
                       .sm_count = 132,
                       .smem_per_block_optin = 227 * 1024,
                       .smem_per_sm = 228 * 1024,
                       .registers_per_sm = 65536};
const AttentionSpec spec{.head_dim = 64};
const AttentionShape shape{.batch = 4, .heads_q = 32, .seqlen_q = 4096, .seqlen_kv = 4096};

std::vector<BenchRow> rows_of(const RowOptions& options, const AttentionShape& sizes = shape) {
  return choose_rows(options, spec, sized_arguments(spec, sizes), sm_90);
}

std::vector<KernelConfig> ranked_for(const AttentionShape& sizes) {
  return candidate_configs(spec, sized_arguments(spec, sizes), sm_90);
}

// Equal for near-copies: the fields that decide how the work is cut and where it lies.
std::string tiling_of(const KernelConfig& config) {
  std::string text(family_name(config));
  for (const ConfigValue& value : config_values(config)) {
    for (const char* name : {"tile_q", "tile_kv", "warps", "rescale", "q_in_registers"}) {
      if (value.name == name) text += fmt::format(" {}={}", name, value.text);
    }
  }
  return text;
}

TEST(CliBench, WrongOptionsAreNamed) {
  const jit::testing::Tool tool;
  expect_bad_input(tool.run({"bench", "--candidates", "0"}), "--candidates");
  expect_bad_input(tool.run({"bench", "--candidates", "many"}), "--candidates");
  expect_bad_input(tool.run({"bench", "--candidates", "3", "--among", ""}),
                   "--among: has no field; give one");
  expect_bad_input(tool.run({"bench", "--among", "family=forward_wgmma"}), "--among requires --candidates");
  expect_bad_input(tool.run({"bench", "--config", "tile_q=64", "--config", "tile_z=3"}),
                   "--config \"tile_z=3\": 'tile_z=3' is not field=value of a config; fields are family");
  expect_bad_input(tool.run({"bench", "--deterministic"}), "--deterministic requires --backward");
  expect_bad_input(tool.run({"bench", "--backward", "--ladder"}), "--ladder is of forward");
  expect_bad_input(tool.run({"bench", "--ladder", "stairs"}), "stairs not in {attention,matmul}");
  expect_bad_input(tool.run({"bench", "--ladder", "matmul", "--heads", "3"}), "--heads is of attention");
  expect_bad_input(tool.run({"bench", "--counts", "counts.json"}), "--counts is of --ladder matmul");
  expect_bad_input(tool.run({"bench", "--ladder", "matmul", "--backward"}), "--backward is of attention");
  expect_bad_input(tool.run({"bench", "--m", "64"}), "--m is of --ladder matmul");
  expect_bad_input(tool.run({"bench", "--ladder", "--splits", "2"}), "--splits is of --ladder matmul");
  expect_bad_input(tool.run({"bench", "--ladder", "matmul", "--k", "0"}), "--k");
  expect_bad_input(tool.run({"bench", "--backward", "--sequences-kv", "paged", "--page-size", "16"}),
                   "has no backward");
  expect_bad_input(tool.run({"bench", "--backward", "--config", "family=backward_wgmma + tile_z=3"}),
                   "tile_z=3");
  expect_bad_input(tool.run({"bench", "--config", "tile_q=wide"}), "--config \"tile_q=wide\"");
  expect_bad_input(tool.run({"bench", "--config", ""}), "--config \"\" has no field; give one such as");
  expect_bad_input(
      tool.run({"bench", "--candidates", "3", "--among", "family=forward_wgmma warps=4"}),
      "--among \"family=forward_wgmma warps=4\": config field warps belongs to family=forward_mma_sync");
}

TEST(CliBench, EachConfigIsARow) {
  const std::vector<BenchRow> rows = rows_of(
      {.configs = {"tile_q=64 tile_kv=32 warps=4", "family=forward_wgmma tile_kv=128", "tile_q=1 warps=4"}});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "given_1");
  EXPECT_THAT(to_string(rows[0].configs), HasSubstr(" tile_kv=32 "));
  EXPECT_EQ(rows[1].name, "given_2");
  EXPECT_EQ(family_name(rows[1].configs.front()), "forward_wgmma");
  EXPECT_THAT(to_string(rows[2].configs), HasSubstr(" tile_q=1 "));
}

TEST(CliBench, TheLadderComesFirstAndTheChosenConfigWhenNoOtherIsNamed) {
  const std::vector<BenchRow> rows = rows_of({.ladder = true, .configs = {"tile_q=64 tile_kv=32 warps=4"}});
  ASSERT_EQ(rows.size(), ladder().size() + 1);
  EXPECT_EQ(rows.front().name, ladder().front().name);
  EXPECT_EQ(rows.back().name, "given_1");
  EXPECT_TRUE(RowOptions{.ladder = true}.wants_chosen());
  EXPECT_FALSE(RowOptions{.configs = {"tile_q=64"}}.wants_chosen());
  EXPECT_FALSE(RowOptions{.candidates = 1}.wants_chosen());
}

TEST(CliBench, CandidatesAreTheBestOfTheRankingWithoutNearCopies) {
  const std::vector<KernelConfig> ranked = ranked_for(shape);
  const std::vector<BenchRow> rows = rows_of({.candidates = 30});
  ASSERT_EQ(rows.size(), 30u);
  EXPECT_EQ(rows[0].configs, PlanConfigs{ranked[0]});
  EXPECT_EQ(rows[0].name, "candidate_1");
  EXPECT_EQ(rows[29].name, "candidate_30");
  std::map<std::string, int> alike;
  auto place = ranked.begin();
  for (const BenchRow& row : rows) {
    const auto found = std::find(place, ranked.end(), row.configs.front());
    ASSERT_NE(found, ranked.end()) << row.name << " is out of order";
    // Configs that were passed over are near-copies of two rows before.
    for (; place != found; ++place) EXPECT_EQ(alike[tiling_of(*place)], 2) << to_string(*place);
    ++place;
    EXPECT_LE(++alike[tiling_of(row.configs.front())], 2) << row.name;
    EXPECT_THAT(row.why, StartsWith(fmt::format("rank {} of {} ", place - ranked.begin(), ranked.size())));
  }
  EXPECT_GT(place - ranked.begin(), 30) << "nothing was passed over";
}

TEST(CliBench, CandidatesAreRankedForTheSizesGiven) {
  const AttentionShape decode{.batch = 1, .heads_q = 8, .seqlen_q = 1, .seqlen_kv = 4096};
  ASSERT_NE(ranked_for(decode)[0], ranked_for(shape)[0]);
  EXPECT_EQ(rows_of({.candidates = 1}, decode)[0].configs, PlanConfigs{ranked_for(decode)[0]});
}

TEST(CliBench, AmongNarrowsTheCandidates) {
  const std::vector<BenchRow> rows = rows_of({.candidates = 4, .among = "family=forward_wgmma tile_kv=128"});
  ASSERT_EQ(rows.size(), 4u);
  for (const BenchRow& row : rows) {
    EXPECT_EQ(family_name(row.configs.front()), "forward_wgmma") << row.name;
    EXPECT_THAT(to_string(row.configs), HasSubstr(" tile_kv=128 ")) << row.name;
  }
  for (const BenchRow& row : rows_of({.candidates = 8, .among = "warps=8"}))
    EXPECT_EQ(family_name(row.configs.front()), "forward_mma_sync") << row.name;
  // As many as there are.
  const std::vector<BenchRow> all = rows_of({.candidates = 1000, .among = "family=forward_mma_sync"});
  EXPECT_GT(all.size(), 10u);
  EXPECT_LT(all.size(), 1000u);
}

TEST(CliBench, FieldsThatNoLegalConfigHasAreBadInput) {
  const auto reason = [](const std::string& among) {
    try {
      rows_of({.candidates = 3, .among = among});
    } catch (const BadInput& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(reason("tile_q=7"), StartsWith("--among \"tile_q=7\": none of the "));
  EXPECT_THAT(reason("tile_q=7"), HasSubstr(to_string(spec) + " on sm_90a"));
  EXPECT_THAT(reason("tile_q=7"), EndsWith("give fewer, or give the config with --config"));
}

TEST(CliBench, NoConfigIsTimedTwice) {
  const KernelConfig best = ranked_for(shape)[0];
  const std::vector<BenchRow> rows = rows_of({.configs = {to_string(best)}, .candidates = 5});
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].configs, PlanConfigs{best});
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_NE(rows[i].configs, PlanConfigs{best}) << rows[i].name;
}

TEST(CliBench, RowsOfBackwardAreOfOneKernelOrTwo) {
  const BackwardArguments arguments = sized_backward_arguments(spec, shape);
  const std::string pair = "family=backward_dq_mma_sync tile_q=64 + family=backward_dkv_mma_sync tile_kv=64";
  const std::vector<BenchRow> rows = choose_rows(
      {.configs = {"family=backward_wgmma stages=4", pair}, .candidates = 8}, spec, arguments, sm_90);
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_EQ(rows[0].configs, PlanConfigs{BackwardWgmma{.stages = 4}});
  EXPECT_EQ(rows[1].configs,
            (PlanConfigs{BackwardDqMmaSync{.tile_q = 64}, BackwardDkvMmaSync{.tile_kv = 64}}));
  EXPECT_EQ(rows[2].configs, PlanConfigs{BackwardWgmma{}}) << "the cost model's first";
  EXPECT_EQ(rows.back().configs.size(), 2u);
  for (const BenchRow& row : choose_rows({.candidates = 4, .among = "family=backward_dkv_mma_sync warps=4"},
                                         spec, arguments, sm_90)) {
    ASSERT_EQ(row.configs.size(), 2u) << row.name;
    EXPECT_EQ(std::get<BackwardDkvMmaSync>(row.configs[1]).warps, 4) << row.name;
  }
}

TEST(CliBench, ARowOfTwoKernelsHasWhatBothNeed) {
  KernelImage first, second;
  first.compile_ms = 2;
  first.resources.registers = 100;
  first.resources.spill_store_bytes = 4;
  second.compile_ms = 3;
  second.resources.registers = 90;
  second.resources.spill_load_bytes = 8;
  BenchRow row{.name = "given_1", .why = "given", .configs = {BackwardDqMmaSync{}, BackwardDkvMmaSync{}}};
  for (const KernelImage& image : {first, second})
    row.kernels.push_back(
        Access::kernel(nullptr, spec, KernelConfig{}, std::make_shared<const KernelImage>(image), "given"));
  row.timing = summarize({1});
  const nlohmann::ordered_json json = describe_row(row, 1e6);
  EXPECT_EQ(json["config"], to_string(row.configs));
  EXPECT_EQ(json["compile_ms"], 5);
  EXPECT_EQ(json["registers"], 100);
  EXPECT_EQ(json["spill_bytes"], 12);
}

TEST(CliBench, ARowSaysWhatItsKernelNeeds) {
  KernelImage image;
  const auto kernel = [&] {
    return Access::kernel(nullptr, spec, KernelConfig{}, std::make_shared<const KernelImage>(image), "given");
  };
  image.compile_ms = 12.5;
  image.resources.registers = 168;
  image.resources.stack_bytes = 24;
  image.resources.spill_store_bytes = 4;
  image.resources.spill_load_bytes = 8;
  BenchRow row{.name = "given_1", .why = "given", .configs = {KernelConfig{}}};
  row.kernels = {kernel()};
  row.timing = summarize({3, 1, 2});
  nlohmann::ordered_json json = describe_row(row, 4e6);
  EXPECT_EQ(json["config"], to_string(KernelConfig{}));
  EXPECT_EQ(json["compile_ms"], 12.5);
  EXPECT_EQ(json["registers"], 168);
  EXPECT_EQ(json["spill_bytes"], 12);
  EXPECT_EQ(json["local_bytes"], 36);
  EXPECT_EQ(json["serialized"], false);
  EXPECT_EQ(json["median_us"], 2);
  EXPECT_EQ(json["tflops"], 2);
  EXPECT_FALSE(json.contains("trouble"));

  image.resources.remarks = {
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"};
  row.kernels = {kernel()};
  row.trouble = "wrong: by far";
  json = describe_row(row, 4e6);
  EXPECT_EQ(json["serialized"], true);
  EXPECT_EQ(json["trouble"], "wrong: by far");
  EXPECT_FALSE(json.contains("median_us"));

  row.kernels.clear();
  json = describe_row(row, 4e6);
  EXPECT_EQ(json["trouble"], "wrong: by far");
  EXPECT_FALSE(json.contains("registers"));
}

}  // namespace
}  // namespace jit::tool
