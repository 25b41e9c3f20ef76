// jit-attention run, tune and bench on a device.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device.h>

#include "tests/device/wanted_device.h"
#include "tests/support/cli_testing.h"
#include "tools/jit_attention/npy.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using tool::Array;

class CliGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    tool_.hide_gpus = false;
    is_emulated_ = device_info(0).emulated;
    const char* const selection = std::getenv("JIT_ATTENTION_DEVICE");
    if (selection != nullptr) tool_.environment.push_back(std::string("JIT_ATTENTION_DEVICE=") + selection);
  }

  std::string file(const std::string& name) const { return tool_.folder / (name + ".npy"); }

  Array random_file(const std::string& name, std::vector<std::int64_t> shape) {
    Array array = tool::zeros(DType::fp32, std::move(shape));
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < array.elements(); ++i) array.as<float>()[i] = normal(random_);
    tool::write_npy(OutputFile(file(name)), array);
    return array;
  }

  Tool tool_;
  bool is_emulated_ = false;
  std::mt19937 random_{1};
};

// Causal attention within documents in double precision; (batch 2, 3 heads for each KV head).
TEST_F(CliGpu, RunMatchesDoublePrecision) {
  constexpr int batch = 2, seqlen_q = 70, seqlen_kv = 100, heads = 6, ratio = 3, dim = 64, dim_v = 32;
  const Array q = random_file("q", {batch, seqlen_q, heads, dim});
  const Array k = random_file("k", {batch, seqlen_kv, heads / ratio, dim});
  const Array v = random_file("v", {batch, seqlen_kv, heads / ratio, dim_v});
  Array ids_q = tool::zeros(DType::int64, {1, seqlen_q}), ids_kv = tool::zeros(DType::int64, {1, seqlen_kv});
  for (int i = 0; i < seqlen_q; ++i) ids_q.as<std::int64_t>()[i] = i / 25;
  for (int i = 0; i < seqlen_kv; ++i) ids_kv.as<std::int64_t>()[i] = i / 40;
  tool::write_npy(OutputFile(file("ids_q")), ids_q);
  tool::write_npy(OutputFile(file("ids_kv")), ids_kv);
  const std::vector<std::string> arguments = {"run",
                                              "--q",
                                              file("q"),
                                              "--k",
                                              file("k"),
                                              "--v",
                                              file("v"),
                                              "--out",
                                              file("o"),
                                              "--lse",
                                              file("lse"),
                                              "--mask",
                                              "causal && document",
                                              "--tensor",
                                              "document_ids_q=" + file("ids_q"),
                                              "--tensor",
                                              "document_ids_kv=" + file("ids_kv"),
                                              "--dtype",
                                              "fp16"};
  const ToolResult result = tool_.run(arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  const Array o = tool::read_npy(file("o")), lse = tool::read_npy(file("lse"));
  ASSERT_EQ(o.dtype, DType::fp32);
  ASSERT_EQ(o.shape, (std::vector<std::int64_t>{batch, seqlen_q, heads, dim_v}));
  ASSERT_EQ(lse.shape, (std::vector<std::int64_t>{batch, heads, seqlen_q}));

  const auto at = [](const Array& array, int b, int s, int h, int d) -> double {
    return array.as<float>()[((b * array.shape[1] + s) * array.shape[2] + h) * array.shape[3] + d];
  };
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < seqlen_q; ++i) {
        double sum = 0;
        std::vector<double> expected(dim_v, 0.0);
        for (int j = 0; j <= i + seqlen_kv - seqlen_q; ++j) {
          if (i / 25 != j / 40) continue;
          double score = 0;
          for (int d = 0; d < dim; ++d) score += at(q, b, i, h, d) * at(k, b, j, h / ratio, d);
          const double weight = std::exp(score / std::sqrt(double{dim}));
          sum += weight;
          for (int d = 0; d < dim_v; ++d) expected[d] += weight * at(v, b, j, h / ratio, d);
        }
        const double found_lse = lse.as<float>()[(b * heads + h) * seqlen_q + i];
        if (sum == 0) {
          EXPECT_EQ(found_lse, -std::numeric_limits<double>::infinity());
        } else {
          EXPECT_NEAR(found_lse, std::log(sum), 2e-2);
        }
        for (int d = 0; d < dim_v; ++d) {
          ASSERT_NEAR(at(o, b, i, h, d), sum == 0 ? 0 : expected[d] / sum, 2e-2)
              << "batch " << b << ", head " << h << ", query " << i << ", column " << d;
        }
      }
    }
  }
}

TEST_F(CliGpu, RunUsesWhatTuneRecorded) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const std::vector<std::string> sizes = {"--heads", "2", "--seqlen-q", "128", "--seqlen-kv", "256"};
  std::vector<std::string> tune = {"tune", "--head-dim", "32", "--seconds", "3", "--json"};
  tune.insert(tune.end(), sizes.begin(), sizes.end());
  const ToolResult tuned = tool_.run(tune);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const nlohmann::json report = tuned.json();
  EXPECT_EQ(report["recorded_in"], tool_.cache());
  EXPECT_GT(report["median_us"], 0);
  EXPECT_FALSE(report["log"].empty());

  random_file("q", {1, 128, 2, 32});
  random_file("k", {1, 256, 2, 32});
  random_file("v", {1, 256, 2, 32});
  const ToolResult run =
      tool_.run({"run", "--q", file("q"), "--k", file("k"), "--v", file("v"), "--out", file("o"), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.json()["kernel"]["why"].get<std::string>(), HasSubstr("recorded"));
}

TEST_F(CliGpu, RunBackwardUsesWhatTuneRecorded) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const ToolResult tuned = tool_.run({"tune", "--backward", "--head-dim", "64", "--heads", "2", "--seqlen-q",
                                      "128", "--seqlen-kv", "256", "--seconds", "3", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const nlohmann::json report = tuned.json();
  EXPECT_EQ(report["backward"], true);
  EXPECT_GT(report["median_us"], 0);
  for (const char* name : {"q", "do"}) random_file(name, {1, 128, 2, 64});
  for (const char* name : {"k", "v"}) random_file(name, {1, 256, 2, 64});
  const ToolResult run = tool_.run({"run", "--q", file("q"), "--k", file("k"), "--v", file("v"), "--out",
                                    file("o"), "--backward", "--do", file("do"), "--dq", file("dq"), "--dk",
                                    file("dk"), "--dv", file("dv"), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json kernels = run.json()["backward_kernels"];
  ASSERT_FALSE(kernels.empty());
  for (const nlohmann::json& kernel : kernels)
    EXPECT_THAT(kernel["why"].get<std::string>(), HasSubstr("recorded"));
}

TEST_F(CliGpu, BenchPrintsTheLadder) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  tool_.environment.push_back("JIT_ATTENTION_TUNING=off");
  const ToolResult result = tool_.run({"bench", "--ladder", "--heads", "2", "--seqlen-q", "256",
                                       "--seqlen-kv", "256", "--mask", "causal", "--samples", "3", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json report = result.json();
  ASSERT_EQ(report["rows"].size(), 5u);
  for (const nlohmann::json& row : report["rows"]) {
    if (row["name"] == "v4_tma" && row.contains("trouble")) continue;  // it is of sm_120a
    EXPECT_FALSE(row.contains("trouble")) << row;
    EXPECT_GT(row["tflops"], 0);
  }
  EXPECT_THAT(report["counted"].get<std::string>(), HasSubstr("50.20 %"));
}

TEST_F(CliGpu, BenchMultipliesMatrices) {
  std::vector<std::string> words = {"bench", "--ladder", "matmul",   "--m", "130",       "--n", "136",
                                    "--k",   "100",      "--splits", "2",   "--samples", "3",   "--json"};
  if (is_emulated_) words.insert(words.end(), {"--listing", tool_.folder / "kernel.txt"});
  const ToolResult result = tool_.run(words);
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json report = result.json(), &rows = report["rows"];
  ASSERT_EQ(rows.size(), is_emulated_ ? 6u : 7u);
  EXPECT_EQ(report["splits"], 2);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_FALSE(rows[i].contains("trouble")) << rows[i];
    EXPECT_GT(rows[i][is_emulated_ ? "warp_instructions" : "tflops"], 0) << rows[i];
  }
  if (is_emulated_) {
    EXPECT_EQ(rows[1]["name"], "tensor_cores");
    EXPECT_GT(rows[1]["bank_conflicts"], 0);
    EXPECT_EQ(rows[2]["bank_conflicts"], 0);
    EXPECT_THAT(read_text(tool_.folder / "kernel.txt"), HasSubstr("ldmatrix.sync"));
    return;
  }
  // cuBLAS is timed where there is one; else the row says where it was looked for.
  EXPECT_EQ(rows[6]["name"], "cublas");
  const std::string trouble = rows[6].value("trouble", "libcublas was found");
  EXPECT_THAT(trouble, HasSubstr("libcublas"));
}

TEST_F(CliGpu, BenchTimesConfigsAndCandidates) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const ToolResult result =
      tool_.run({"bench", "--config", "tile_q=64 tile_kv=32 warps=4", "--config", "tile_q=1 warps=4",
                 "--candidates", "3", "--heads", "2", "--head-dim", "32", "--seqlen-q", "256", "--seqlen-kv",
                 "256", "--samples", "3", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json rows = result.json()["rows"];
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0]["name"], "given_1");
  EXPECT_THAT(rows[1]["trouble"].get<std::string>(), HasSubstr("tile_q = 1"));
  EXPECT_FALSE(rows[1].contains("median_us"));
  for (const std::size_t timed : {0u, 2u, 3u, 4u}) {
    EXPECT_FALSE(rows[timed].contains("trouble")) << rows[timed];
    EXPECT_EQ(rows[timed]["samples_us"].size(), 3u);
    EXPECT_GT(rows[timed]["compile_ms"], 0);
    EXPECT_TRUE(rows[timed]["serialized"].is_boolean());
    EXPECT_TRUE(rows[timed]["local_bytes"].is_number());
  }
}

TEST_F(CliGpu, BenchTimesGradients) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const ToolResult result =
      tool_.run({"bench", "--backward", "--config",
                 "family=backward_dq_mma_sync tile_q=64 + family=backward_dkv_mma_sync tile_kv=64",
                 "--config", "family=backward_dq_mma_sync", "--candidates", "2", "--heads", "2", "--head-dim",
                 "64", "--seqlen-q", "256", "--seqlen-kv", "256", "--samples", "3", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json rows = result.json()["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[1]["trouble"].get<std::string>(), HasSubstr("by one of dq and then one of dk and dv"));
  for (const std::size_t timed : {0u, 2u, 3u}) {
    EXPECT_FALSE(rows[timed].contains("trouble")) << rows[timed];
    EXPECT_GT(rows[timed]["tflops"], 0);
  }
}

TEST_F(CliGpu, BenchTimesBlocksOfAFile) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  Array map = tool::zeros(DType::uint8, {4, 4});
  for (const int i : {0, 4, 5, 10, 13}) map.as<std::uint8_t>()[i] = 1;
  tool::write_npy(OutputFile(file("map")), map);
  const ToolResult result =
      tool_.run({"bench", "--block-map", file("map"), "--block-size", "64,64", "--heads", "2", "--seqlen-q",
                 "256", "--seqlen-kv", "256", "--candidates", "2", "--samples", "3", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.json()["counted"].get<std::string>(), HasSubstr("31.25 %"));
  for (const nlohmann::json& row : result.json()["rows"]) EXPECT_FALSE(row.contains("trouble")) << row;
}

TEST_F(CliGpu, BenchTimesSequences) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const std::vector<std::vector<std::string>> kinds = {
      {"--sequences-kv", "paged", "--page-size", "16", "--num-splits", "2"},
      {"--sequences-q", "varlen", "--sequences-kv", "varlen", "--sinks", "--candidates", "2"},
      {"--sequences-q", "varlen", "--sequences-kv", "paged", "--page-size", "3", "--split-keys", "64"}};
  for (const std::vector<std::string>& kind : kinds) {
    std::vector<std::string> words = {"bench", "--batch",   "3",      "--heads",    "4", "--gqa-ratio",
                                      "2",     "--mask",    "causal", "--seqlen-q", "2", "--seqlen-kv",
                                      "300",   "--samples", "3",      "--json"};
    words.insert(words.end(), kind.begin(), kind.end());
    const ToolResult result = tool_.run(words);
    ASSERT_EQ(result.status, 0) << result.err;
    ASSERT_FALSE(result.json()["rows"].empty());
    for (const nlohmann::json& row : result.json()["rows"]) {
      EXPECT_FALSE(row.contains("trouble")) << row;
      EXPECT_THAT(row["config"].get<std::string>(), HasSubstr("forward_split_"));
    }
  }
}

TEST_F(CliGpu, BenchWithoutATimeFails) {
  if (is_emulated_) GTEST_SKIP() << "an emulated device has no time to measure";
  const ToolResult result = tool_.run(
      {"bench", "--config", "tile_q=1 warps=4", "--heads", "2", "--seqlen-q", "256", "--seqlen-kv", "256"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("tile_q = 1"));
}

TEST_F(CliGpu, UnknownDevicesAreBadInput) {
  if (is_emulated_) GTEST_SKIP() << "there may be no GPU beside the emulated device";
  expect_bad_input(tool_.run({"bench", "--device", "cuda:99"}), "no device 99");
}

}  // namespace
}  // namespace jit::testing
