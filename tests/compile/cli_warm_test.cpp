// jit-attention warm, and processes that have its pack: they never compile.
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/search.h"
#include "tests/support/cli_testing.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tools/jit_attention/npy.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// A model so small that its kernels compile fast.
class CliWarm : public ::testing::Test {
 protected:
  static constexpr int heads = 2, heads_kv = 1, dim = 16;

  void SetUp() override {
    maker_.cache_folder = shared_cache_settings().cache_dir;
    write_text(maker_.folder / "config.json",
               R"({"model_type": "llama", "head_dim": 16, "num_attention_heads": 2,
      "num_key_value_heads": 1, "torch_dtype": "float16", "max_position_embeddings": 64})");
  }

  // Packs of many kernels take turns: a run makes a quarter of them. Those of Python's tests are for the first two kinds.
  static bool is_turn_of(std::uint64_t kind) { return reference::is_in_this_run(kind, 4); }

  ToolResult warm(const std::string& targets, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"warm",  "--model", maker_.folder.path(), "--arch", targets,
                                          "--out", pack(),    "--max-batch",        "2",      "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return maker_.run(arguments);
  }
  std::string pack() const { return maker_.folder / "model.pack"; }

  // A call in a process of its own, with nothing but the pack.
  ToolResult run(const std::string& device, int queries, int keys, const std::string& mask = "causal",
                 std::vector<std::string> variables = {"JIT_ATTENTION_OFFLINE=1"}) const {
    Tool user;
    user.environment = std::move(variables);
    user.environment.push_back("JIT_ATTENTION_PACK=" + pack());
    return run_in(user, device, queries, keys, mask);
  }
  // Trains the model: with gradients.
  ToolResult train(const std::string& device, int queries, int keys) const {
    Tool user;
    user.environment = {"JIT_ATTENTION_OFFLINE=1", "JIT_ATTENTION_PACK=" + pack()};
    tool::write_npy(OutputFile(user.folder / "do"), tool::zeros(DType::fp32, {1, queries, heads, dim}));
    return run_in(user, device, queries, keys, "causal",
                  {"--backward", "--do", user.folder / "do", "--dq", user.folder / "dq", "--dk",
                   user.folder / "dk", "--dv", user.folder / "dv"});
  }
  static ToolResult run_in(const Tool& user, const std::string& device, int queries, int keys,
                           const std::string& mask, const std::vector<std::string>& more = {}) {
    const auto file = [&](const char* name) { return user.folder / name; };
    for (const auto& [name, length, count] :
         {std::tuple("q", queries, heads), {"k", keys, heads_kv}, {"v", keys, heads_kv}})
      tool::write_npy(OutputFile(file(name)), tool::zeros(DType::fp32, {1, length, count, dim}));
    std::vector<std::string> arguments = {"run",  "--q",     file("q"), "--k",      file("k"),
                                          "--v",  file("v"), "--out",   file("o"),  "--dtype",
                                          "fp16", "--mask",  mask,      "--device", device};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ToolResult result = user.run(arguments);
    EXPECT_EQ(std::filesystem::exists(file("o")), result.status == 0);
    return result;
  }

  Tool maker_;
};

TEST_F(CliWarm, AProcessWithThePackNeverCompiles) {
  const ToolResult made = warm("emulated:sm_80,emulated:sm_90a");
  ASSERT_EQ(made.status, 0) << made.err;
  const nlohmann::json report = made.json();
  EXPECT_EQ(report["bytes"], std::filesystem::file_size(pack()));
  EXPECT_GE(report["kernels"].size(), 4u);
  for (const nlohmann::json& kernel : report["kernels"]) {
    EXPECT_EQ(kernel["spec"], "fp16 d16 gqa2 mask=causal");
    EXPECT_GT(kernel["sizes"], 0) << "of PTX the first config is taken";
    EXPECT_LE(kernel["seqlen_kv"][1], 2048);
  }
  for (const char* device : {"emulated:sm_80", "emulated:sm_90a"}) {
    for (const auto& [queries, keys] : {std::pair(1, 1), {1, 64}, {7, 50}, {64, 64}, {33, 33}, {5, 5}}) {
      const ToolResult result = run(device, queries, keys);
      EXPECT_EQ(result.status, 0) << device << " " << queries << " x " << keys << ": " << result.err;
    }
  }
}

TEST_F(CliWarm, JobsAndQuietChangeNothingOfThePack) {
  if (!is_turn_of(1)) GTEST_SKIP() << "this run\'s seed takes another kind of pack";
  const auto arguments = [&](const char* out) {
    return std::vector<std::string>{
        "warm",  "--model",           maker_.folder.path(), "--arch", "emulated:sm_80",
        "--out", maker_.folder / out, "--max-batch",        "2"};
  };
  std::vector<std::string> quiet = arguments("quiet.pack");
  quiet.insert(quiet.end(), {"--jobs", "1", "-q"});
  const ToolResult silent = maker_.run(quiet);
  ASSERT_EQ(silent.status, 0) << silent.err;
  EXPECT_EQ(silent.err, "");
  EXPECT_EQ(std::count(silent.out.begin(), silent.out.end(), '\n'), 2) << silent.out;
  const ToolResult told = maker_.run(arguments("told.pack"));
  ASSERT_EQ(told.status, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("sm_80 as PTX"));
  EXPECT_EQ(read_text(maker_.folder / "quiet.pack"), read_text(maker_.folder / "told.pack"));
  quiet[quiet.size() - 2] = "0";
  const ToolResult refused = maker_.run(quiet);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--jobs"));
}

TEST_F(CliWarm, APackForServingIsOfPages) {
  if (!is_turn_of(0)) GTEST_SKIP() << "this run\'s seed takes another kind of pack";
  const ToolResult made =
      warm("emulated:sm_80", {"--serving", "--page-size", "32", "--kv-dtype", "fp8_e4m3"});
  ASSERT_EQ(made.status, 0) << made.err;
  std::set<std::string> specs;
  const nlohmann::json report = made.json();
  for (const nlohmann::json& kernel : report["kernels"]) specs.insert(kernel["spec"]);
  EXPECT_THAT(specs, IsSupersetOf({"fp16 d16 gqa2 q=varlen kv=paged page32 kv_dtype=fp8_e4m3 mask=causal",
                                   "fp16 d16 gqa2 kv=paged page32 kv_dtype=fp8_e4m3 mask=causal",
                                   "append fp16 d16 to fp8_e4m3 rotary16 fp32",
                                   "merge fp32 to fp16 d16 align16 views2"}));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--page-size", "32"},
                                                {"--serving", "--page-size", "0"},
                                                {"--serving", "--training"},
                                                {"--serving", "--kv-dtype", "fp32"},
                                                {"--serving", "--split-keys", "100"}}) {
    const ToolResult refused = warm("emulated:sm_80", wrong);
    EXPECT_NE(refused.status, 0);
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

// A pack knows append's steps on the way to the cache, the granularity of scales, and the masks that are
// called.
TEST_F(CliWarm, APackForServingIsOfTheModel) {
  if (!is_turn_of(1)) GTEST_SKIP() << "this run's seed takes another kind of pack";
  const auto specs_of = [&](const std::string& config, const std::vector<std::string>& more) {
    write_text(maker_.folder / "config.json", config);
    std::vector<std::string> options = {"--serving", "--max-seqlen", "1"};
    options.insert(options.end(), more.begin(), more.end());
    const ToolResult made = warm("emulated:sm_80", options);
    EXPECT_EQ(made.status, 0) << made.err;
    std::set<std::string> specs;
    const nlohmann::json report = made.json();
    for (const nlohmann::json& kernel : report["kernels"]) specs.insert(kernel["spec"]);
    return specs;
  };
  const std::string qwen = R"({"model_type": "qwen3", "head_dim": 16, "num_attention_heads": 2,
      "num_key_value_heads": 1, "torch_dtype": "float16", "max_position_embeddings": 64})";
  EXPECT_THAT(specs_of(qwen, {"--kv-dtype", "fp8_e4m3", "--descale-per", "token", "--causal-per-request"}),
              IsSupersetOf({"fp16 d16 gqa2 align4 q=varlen kv=paged page16 kv_dtype=fp8_e4m3 "
                            "descale_per=token mask=causal_per_request",
                            "append fp16 d16 to fp8_e4m3 with scales align8",
                            "append fp16 d16 to fp8_e4m3 with scales align8 rotary16 fp16 norm fp16"}));
  EXPECT_THAT(specs_of(R"({"model_type": "qwen2_vl", "head_dim": 16, "num_attention_heads": 2,
      "dtype": "float16", "rope_scaling": {"mrope_section": [2, 3, 3]}})",
                       {"--rotary-interleaved", "--norm", "--norm-adds-one"}),
              IsSupersetOf({"append fp16 d16 rotary16 interleaved fp32 sections(2, 3, 3) norm fp16 + 1"}));
  EXPECT_THAT(specs_of(R"({"head_dim": 16, "num_attention_heads": 2, "dtype": "float16"})",
                       {"--rotary-dim", "8", "--mrope-sections", "2,1,1", "--mrope-interleaved"}),
              IsSupersetOf({"append fp16 d16 rotary8 fp32 sections(2, 1, 1) in turns"}));
  // An encoder keeps nothing: prompts are read by themselves.
  const std::set<std::string> of_encoder =
      specs_of(R"({"model_type": "bert", "head_dim": 16, "num_attention_heads": 2, "dtype": "float16"})", {});
  EXPECT_TRUE(of_encoder.contains("fp16 d16 q=varlen kv=varlen"));
  for (const std::string& spec : of_encoder) EXPECT_THAT(spec, Not(HasSubstr("paged")));

  write_text(maker_.folder / "config.json", qwen);
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--serving", "--descale-per", "token"},
        {"--serving", "--kv-dtype", "fp8_e4m3", "--descale-per", "block"},
        {"--serving", "--mrope-sections", "1,2"},
        {"--serving", "--mrope-sections", "1,2,3"},
        {"--serving", "--mrope-interleaved"},
        {"--serving", "--rotary-dim", "32"},
        {"--serving", "--norm-adds-one"},
        {"--serving", "--causal-per-request", "--mask", "causal"},
        {"--norm"}}) {
    const ToolResult refused = warm("emulated:sm_80", wrong);
    EXPECT_NE(refused.status, 0) << wrong.back();
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

// Prompts by heads, what is kept as it is kept; where no kernel reads that, one sentence says so.
TEST_F(CliWarm, APackOfLatentAttentionReadsTheCache) {
  if (!is_turn_of(2)) GTEST_SKIP() << "this run's seed takes another kind of pack";
  write_text(maker_.folder / "config.json", R"({"model_type": "deepseek_v3", "num_attention_heads": 16,
      "kv_lora_rank": 512, "qk_nope_head_dim": 16, "qk_rope_head_dim": 64, "v_head_dim": 16,
      "max_position_embeddings": 64})");
  const auto look = [&](const std::string& targets, const std::vector<std::string>& more) {
    const ToolResult made = warm(targets, more);
    EXPECT_EQ(made.status, 0) << made.err;
    const nlohmann::json report = made.json();
    std::set<std::string> kernels;
    for (const nlohmann::json& kernel : report["kernels"])
      kernels.insert(kernel["target"].get<std::string>() + ": " + kernel["spec"].get<std::string>());
    return std::pair(kernels, report["remarks"].dump());
  };
  const auto [kernels, remarks] = look("emulated:sm_90a,emulated:sm_80", {"--serving", "--max-seqlen", "1"});
  const std::string latent = "bf16 d576/512 gqa16 q=varlen kv=paged page16 values_in_keys=true mask=causal";
  const std::string prompts = "bf16 d80/16 q=varlen kv=varlen mask=causal";
  EXPECT_THAT(
      kernels,
      IsSupersetOf(std::set<std::string>{
          "sm_90a as PTX: " + latent,
          "sm_90a as PTX: bf16 d576/512 gqa16 kv=paged page16 values_in_keys=true mask=causal",
          "sm_90a as PTX: " + prompts, "sm_80 as PTX: " + prompts, "sm_90a as PTX: append bf16 d64/512",
          "sm_90a as PTX: append bf16 d64/512 rotary64 interleaved fp32",
          std::string("sm_90a as PTX: merge fp32 to bf16 d512 align16 views2")}));
  EXPECT_FALSE(kernels.contains("sm_80 as PTX: " + latent));
  EXPECT_THAT(remarks, HasSubstr("there are no kernels over the cache of latents for sm_80: sm_90a alone"));

  const auto [older, older_remarks] = look("emulated:sm_80", {"--serving", "--max-seqlen", "1"});
  EXPECT_TRUE(older.contains("sm_80 as PTX: " + prompts));
  EXPECT_THAT(older_remarks, HasSubstr("there are no kernels over the cache of latents for sm_80"));
  EXPECT_THAT(look("emulated:sm_80", {"--max-seqlen", "1"}).second, HasSubstr("--serving has them"));
  expect_bad_input(warm("emulated:sm_90a", {"--serving", "--kv-dtype", "fp8_e4m3"}),
                   "a cache of latents must be of 16 bits");
}

TEST_F(CliWarm, APackForTrainingHasGradients) {
  if (!is_turn_of(1)) GTEST_SKIP() << "this run\'s seed takes another kind of pack";
  constexpr const char* devices = "emulated:sm_80,emulated:sm_90a";
  ASSERT_EQ(warm(devices, {"--training"}).status, 0);
  for (const char* device : {"emulated:sm_80", "emulated:sm_90a"}) {
    for (const auto& [queries, keys] : {std::pair(1, 64), {64, 64}, {33, 40}}) {
      const ToolResult result = train(device, queries, keys);
      EXPECT_EQ(result.status, 0) << device << " " << queries << " x " << keys << ": " << result.err;
    }
  }
  ASSERT_EQ(warm(devices).status, 0);
  const ToolResult refused = train("emulated:sm_90a", 33, 40);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("backward"));
  EXPECT_THAT(refused.err, HasSubstr("with --training where gradients are computed"));
}

// Attention of fp8 and what makes q, k and v for it, out of arrays of the model's type, beside that of the model's type.
TEST_F(CliWarm, APackOfFp8HasQuantizers) {
  if (!is_turn_of(2)) GTEST_SKIP() << "this run\'s seed takes another kind of pack";
  const std::vector<std::string> options = {"--quantize", "head", "--center-keys", "--center-values",
                                            "--interpolated-exponentials"};
  const ToolResult made = warm("emulated:sm_80", options);
  ASSERT_EQ(made.status, 0) << made.err;
  std::set<std::string> specs;
  const nlohmann::json report = made.json();
  for (const nlohmann::json& kernel : report["kernels"]) specs.insert(kernel["spec"]);
  EXPECT_THAT(
      specs,
      IsSupersetOf(
          {"fp16 d16 gqa2 mask=causal",
           "fp8_e4m3 d16 gqa2 out_dtype=fp16 v_mean=true interpolated_exponentials=true mask=causal",
           "fp8_e4m3 d16 gqa2 out_dtype=fp16 v_mean=true lse_shift=true interpolated_exponentials=true "
           "mask=causal",
           "quantize_qkv fp16 to fp8_e4m3 d16 scales head/head k-mean v-mean",
           "quantize_qkv fp16 to fp8_e4m3 d16 scales head/head k-mean v-mean padded",
           "quantize_qkv fp16 to fp8_e4m3 d16 scales head/head rotated v-mean"}));
  Tool reader;
  reader.environment = {"JIT_ATTENTION_PACK=" + pack()};
  const nlohmann::json described = reader.run({"info", "--json"}).json()["packs"][0];
  EXPECT_EQ(described["refusal"], "");
  EXPECT_THAT(described["targets"].get<std::string>(), HasSubstr("sm_80"));
  EXPECT_GT(described["entries"].get<std::size_t>(), 4u);
  for (const auto& [queries, keys] : {std::pair(1, 64), {33, 33}}) {
    Tool user;
    user.environment = {"JIT_ATTENTION_OFFLINE=1", "JIT_ATTENTION_PACK=" + pack()};
    std::vector<std::string> arguments = {"run",    "--out",    user.folder / "o", "--mask",
                                          "causal", "--device", "emulated:sm_80"};
    for (const auto& [name, length, count] :
         {std::tuple("q", queries, heads), {"k", keys, heads_kv}, {"v", keys, heads_kv}}) {
      const std::string path = user.folder / name;
      tool::write_npy(OutputFile(path), tool::zeros(DType::fp16, {1, length, count, dim}));
      arguments.insert(arguments.end(), {std::string("--") + name, path});
    }
    for (const bool rotated : {false, true}) {
      std::vector<std::string> quantized = arguments;
      quantized.insert(quantized.end(),
                       {"--quantize", "head", "--center-values", "--interpolated-exponentials"});
      if (rotated) quantized.insert(quantized.end(), {"--rotation-seed", "7"});
      const ToolResult result = user.run(quantized);
      EXPECT_EQ(result.status, 0) << queries << " x " << keys << ": " << result.err;
    }
    std::vector<std::string> other = arguments;
    other.insert(other.end(), {"--quantize", "token", "--center-values", "--interpolated-exponentials"});
    EXPECT_EQ(user.run(other).status, 1);  // whose scales the pack was not made for
  }
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--quantize", "channel"},
                                                {"--quantize", "head", "--serving"},
                                                {"--center-keys"}}) {
    const ToolResult refused = warm("emulated:sm_80", wrong);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

// Without NVRTC the pack's own compiler stands in keys.
TEST_F(CliWarm, ThePackServesWhereThereIsNoNvrtc) {
  ASSERT_EQ(warm("emulated:sm_80").status, 0);
  const std::string nowhere = "JIT_ATTENTION_NVRTC=" + maker_.folder.path();
  EXPECT_EQ(run("emulated:sm_80", 9, 9, "causal", {"JIT_ATTENTION_OFFLINE=1", nowhere}).status, 0);
  EXPECT_EQ(run("emulated:sm_80", 9, 9, "causal", {nowhere}).status, 0);
  const ToolResult other = run("emulated:sm_80", 9, 9, "none", {nowhere});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("NVRTC"));
}

TEST_F(CliWarm, AMissingKernelIsNamed) {
  ASSERT_EQ(warm("emulated:sm_80").status, 0);
  const ToolResult other_mask = run("emulated:sm_80", 9, 9, "none");
  EXPECT_EQ(other_mask.status, 1);
  EXPECT_THAT(other_mask.err, HasSubstr("for sm_80 as PTX (key "));
  EXPECT_THAT(other_mask.err, HasSubstr("spec fp16 d16 gqa2, config family=forward_mma_sync"));
  EXPECT_THAT(other_mask.err, HasSubstr("make a pack with `jit-attention warm`"));
  EXPECT_THAT(other_mask.err, Not(HasSubstr("; pack")));
  const ToolResult other_device = run("emulated:sm_90a", 9, 9);
  EXPECT_EQ(other_device.status, 1);
  EXPECT_THAT(other_device.err, HasSubstr("was made for sm_80 as PTX and has nothing for sm_90a as PTX"));
}

TEST_F(CliWarm, ADamagedPackIsASentenceAndACompile) {
  ASSERT_EQ(warm("emulated:sm_80").status, 0);
  const std::string whole = read_text(pack());
  const auto expect_sentence = [&](const std::string& bytes, const char* sentence) {
    write_text(pack(), bytes);
    const ToolResult compiled = run("emulated:sm_80", 9, 9, "causal", {});
    EXPECT_EQ(compiled.status, 0) << compiled.err;
    EXPECT_EQ(std::count(compiled.err.begin(), compiled.err.end(), '\n'), 1) << compiled.err;
    EXPECT_THAT(compiled.err, HasSubstr(sentence));
    const ToolResult offline = run("emulated:sm_80", 9, 9);
    EXPECT_EQ(offline.status, 1);
    EXPECT_THAT(offline.err, HasSubstr(sentence));
  };
  expect_sentence(whole.substr(0, whole.size() - 1), "it is cut off");
  std::string head = whole;
  head[40] ^= 1;
  expect_sentence(head, "its head is damaged");
  std::string entries = whole;  // of the code of every entry one bit, whichever a call takes
  for (std::size_t at = entries.find("JITATTN"); at != std::string::npos;
       at = entries.find("JITATTN", at + 1))
    entries[at] ^= 1;
  expect_sentence(entries, "is not used: it is damaged");
}

// Where compiling is forbidden, or there is nothing to compile with, and the choice for a call is not at hand, the best of
// the kernels that are computes it.
TEST_F(CliWarm, WhereNothingCompilesTheBestKernelAtHandWillDo) {
  const AttentionSpec spec{.dtype = DType::fp16, .head_dim = dim, .gqa_ratio = 2, .mask = mask::causal()};
  const ToolResult made = warm("emulated:sm_80", {"--max-seqlen", "1"});
  ASSERT_EQ(made.status, 0) << made.err;
  const nlohmann::json report = made.json();
  std::set<std::string> packed;
  for (const nlohmann::json& kernel : report["kernels"]) packed.insert(kernel["config"]);
  const auto is_packed = [&](const KernelConfig& config) { return packed.contains(to_string(config)); };

  const DeviceLimits limits = device_limits(Arch{8, 0});
  std::vector<KernelConfig> order;
  int keys = 1;
  do {
    keys *= 2;
    ASSERT_LE(keys, 1 << 12) << "no size has a choice of its own";
    order = untuned_order(spec, {.heads_q = heads, .seqlen_q = 1, .seqlen_kv = keys}, limits);
  } while (is_packed(order.front()));
  const KernelConfig best = *std::find_if(order.begin(), order.end(), is_packed);

  const std::string nowhere = "JIT_ATTENTION_NVRTC=" + maker_.folder.path();
  for (const std::string& variable : {std::string("JIT_ATTENTION_OFFLINE=1"), nowhere}) {
    const ToolResult result = run("emulated:sm_80", 1, keys, "causal", {variable});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(to_string(best)));
    EXPECT_THAT(result.out, HasSubstr("in place of a kernel that is not at hand"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("run the best kernel of the spec that is there"));
    EXPECT_THAT(result.err, HasSubstr("--max-batch"));
  }
}

TEST_F(CliWarm, MachineCodeIsForGpus) {
  const ToolResult made = warm("sm_80", {"--multiprocessors", "108", "--max-seqlen", "1"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["max_seqlen"], 1);
  const nlohmann::json report = made.json();
  for (const nlohmann::json& kernel : report["kernels"]) EXPECT_EQ(kernel["target"], "sm_80");
  const ToolResult again = warm("sm_80", {"--multiprocessors", "108", "--max-seqlen", "1"});
  const nlohmann::json repeated = again.json();
  for (const nlohmann::json& kernel : repeated["kernels"]) EXPECT_TRUE(kernel["cached"].get<bool>());
  // The pack has the kernels that the library itself would compile for this architecture without a GPU.
  Tool user;
  user.environment = {"JIT_ATTENTION_OFFLINE=1", "JIT_ATTENTION_PACK=" + pack()};
  const ToolResult compiled = user.run({"compile", "--arch", "sm_80", "--dtype", "fp16", "--head-dim", "16",
                                        "--gqa-ratio", "2", "--mask", "causal", "--json"});
  EXPECT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_TRUE(compiled.json()["cached"].get<bool>());
}

TEST_F(CliWarm, TextNamesEachKernelAndHowToUseThem) {
  Tool& tool = maker_;
  const ToolResult made = tool.run({"warm", "--model", tool.folder.path(), "--arch", "emulated:sm_80",
                                    "--out", pack(), "--max-batch", "1", "--max-seqlen", "16", "--mask",
                                    "causal", "--mask", "none", "--dtype", "bf16"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("sm_80 as PTX  bf16 d16 gqa2 mask=causal  family=forward_mma_sync"));
  EXPECT_THAT(made.out, HasSubstr("sm_80 as PTX  bf16 d16 gqa2  family=forward_mma_sync"));
  EXPECT_THAT(made.out, HasSubstr("for up to 16 tokens in batches of up to 1\n"));
  EXPECT_THAT(made.out, HasSubstr("JIT_ATTENTION_PACK=" + pack() +
                                  " JIT_ATTENTION_OFFLINE=1 runs the model without compiling\n"));
  // A pack that does not have all of the model does not promise that.
  write_text(tool.folder / "config.json",
             R"({"model_type": "llama", "head_dim": 16, "num_attention_heads": 2, "vision_config": {}})");
  const ToolResult part = tool.run({"warm", "--model", tool.folder.path(), "--arch", "emulated:sm_80",
                                    "--out", pack(), "--max-batch", "1", "--max-seqlen", "16"});
  ASSERT_EQ(part.status, 0) << part.err;
  EXPECT_THAT(part.out, HasSubstr("note: vision_config is not read"));
  EXPECT_THAT(part.out, HasSubstr("runs all of the model but what the notes leave out without compiling\n"));
}

}  // namespace
}  // namespace jit::testing
