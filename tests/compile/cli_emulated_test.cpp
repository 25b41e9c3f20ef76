// jit-attention without a GPU: what needs NVRTC and an emulated device.
#include <cmath>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cli_testing.h"
#include "tests/support/process_limits.h"
#include "tools/jit_attention/npy.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using tool::Array;

class CliEmulated : public ::testing::Test {
 protected:
  static constexpr int queries = 20, keys = 40, heads = 2, dim = 16;

  void SetUp() override {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const auto& [name, length] : {std::pair("q", queries), {"k", keys}, {"v", keys}}) {
      Array array = tool::zeros(DType::fp32, {1, length, heads, dim});
      for (std::int64_t i = 0; i < array.elements(); ++i) {
        array.as<float>()[i] = std::round(normal(random) * 16) / 16;  // exact in 16 bits
      }
      tool::write_npy(OutputFile(file(name)), array);
    }
  }
  std::string file(const std::string& name) const { return tool_.folder / (name + ".npy"); }
  ToolResult run(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"run",
                                          "--q",
                                          file("q"),
                                          "--k",
                                          file("k"),
                                          "--v",
                                          file("v"),
                                          "--out",
                                          file("o"),
                                          "--dtype",
                                          "fp16",
                                          "--config",
                                          "tile_q=16 tile_kv=16 warps=1 stages_k=1 stages_v=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool_.run(arguments);
  }
  // o against attention in double precision.
  void check() const {
    const Array q = tool::read_npy(file("q")), k = tool::read_npy(file("k")), v = tool::read_npy(file("v")),
                o = tool::read_npy(file("o"));
    const auto at = [](const Array& array, int position, int head, int i) -> double {
      return array.as<float>()[(position * heads + head) * dim + i];
    };
    for (int head = 0; head < heads; ++head) {
      for (int query = 0; query < queries; ++query) {
        double sum = 0, exact[dim] = {};
        for (int key = 0; key < keys; ++key) {
          double dot = 0;
          for (int i = 0; i < dim; ++i) dot += at(q, query, head, i) * at(k, key, head, i);
          const double weight = std::exp(dot / std::sqrt(double{dim}));
          sum += weight;
          for (int i = 0; i < dim; ++i) exact[i] += weight * at(v, key, head, i);
        }
        for (int i = 0; i < dim; ++i) ASSERT_NEAR(at(o, query, head, i), exact[i] / sum, 5e-3);
      }
    }
  }

  Tool tool_;
};

TEST_F(CliEmulated, NothingIsEmulatedUnasked) {
  const ToolResult result = run();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("CUDA driver"));
  EXPECT_THAT(result.err, HasSubstr("JIT_ATTENTION_DEVICE=emulated:sm_90a"));
  EXPECT_FALSE(std::filesystem::exists(file("o")));
  tool_.environment = {"JIT_ATTENTION_DEVICE=emulated:sm_90a"};
  const ToolResult asked = run();
  ASSERT_EQ(asked.status, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("on emulated sm_90a with"));
  check();
}

TEST_F(CliEmulated, RunOnADeviceThatIsAskedForSaysNothing) {
  for (const char* device : {"emulated:sm_80", "emulated:sm_90a"}) {
    const ToolResult result = run({"--device", device});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    check();
  }
}

TEST_F(CliEmulated, CountsAndListing) {
  const std::string counts = tool_.folder / "counts.json", listing = tool_.folder / "kernel.txt";
  const ToolResult result =
      run({"--device", "emulated:sm_90a", "--counts", counts, "--listing", listing, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["device"], "emulated sm_90a");
  const nlohmann::json launches = nlohmann::json::parse(read_text(counts));
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_TRUE(launches[0]["findings"].empty());
  EXPECT_GT(launches[0]["warp_instructions"], 1000);
  EXPECT_TRUE(launches[0]["counts"].is_object());
  EXPECT_THAT(read_text(listing), HasSubstr("mma.sync.aligned.m16n8k16"));
  EXPECT_THAT(read_text(listing), HasSubstr(".cuh"));
}

TEST_F(CliEmulated, AnOutputIsReplacedWholeOrNotAtAll) {
  ASSERT_EQ(run({"--device", "emulated:sm_80", "--lse", file("lse")}).status, 0);
  const std::string o = read_text(file("o")), lse = read_text(file("lse"));
  write_text(file("o"), "old");
  {
    const FileSizeLimit limit(o.size() - 1);
    const ToolResult result = run({"--device", "emulated:sm_80", "--lse", file("lse")});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(file("o") + " cannot be written: write: File too large"));
  }
  EXPECT_EQ(read_text(file("o")), "old");
  for (const auto& item : std::filesystem::directory_iterator(tool_.folder.path()))
    EXPECT_FALSE(item.path().filename().string().starts_with(".tmp-")) << item.path();
  std::filesystem::rename(file("o"), file("elsewhere"));
  std::filesystem::create_symlink("elsewhere.npy", file("o"));
  ASSERT_EQ(run({"--device", "emulated:sm_80", "--lse", file("lse")}).status, 0);
  EXPECT_EQ(read_text(file("elsewhere")), o);
  EXPECT_EQ(read_text(file("lse")), lse);
}

TEST_F(CliEmulated, TheCacheKeepsWhatEmulatedDevicesRun) {
  const std::vector<std::string> device = {"--device", "emulated:sm_90a"};
  tool_.environment = {"JIT_ATTENTION_OFFLINE=1"};
  const ToolResult refused = run(device);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr(" as PTX (key "));
  EXPECT_FALSE(std::filesystem::exists(file("o")));
  tool_.environment = {};
  ASSERT_EQ(run(device).status, 0);
  std::filesystem::remove(file("o"));
  tool_.environment = {"JIT_ATTENTION_OFFLINE=1"};
  const ToolResult result = run(device);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(file("o")));
}

// A template with an error that hardware may hide: the launch fails, and the counts are written.
TEST_F(CliEmulated, FindingsFailTheRun) {
  const std::string templates = tool_.folder / "templates", counts = tool_.folder / "counts.json";
  std::filesystem::copy(std::string(JIT_ATTENTION_SOURCE_DIR) + "/templates", templates,
                        std::filesystem::copy_options::recursive);
  const std::string path = templates + "/ptx/cp_async.cuh";
  std::string text = read_text(path);
  const std::string wait = "cp.async.wait_group";
  ASSERT_NE(text.find(wait), std::string::npos);
  text.replace(text.find(wait), wait.size(), "// ");
  write_text(path, text);
  tool_.environment = {"JIT_ATTENTION_TEMPLATES=" + templates};
  const ToolResult result = run({"--device", "emulated:sm_80", "--counts", counts});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
  EXPECT_THAT(result.err, HasSubstr(".cuh:"));
  EXPECT_FALSE(nlohmann::json::parse(read_text(counts))[0]["findings"].empty());
}

}  // namespace
}  // namespace jit::testing
