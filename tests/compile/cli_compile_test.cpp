// jit-attention compile and dump: what needs NVRTC but no GPU.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cli_testing.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

// A small kernel, so that the tests compile in a fraction of a second.
std::vector<std::string> small(const std::string& command, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      command, "--arch", "sm_90a", "--head-dim", "32", "--config", "tile_q=64 tile_kv=32 warps=4", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CliCompile, CompilesOnceThenComesFromTheCache) {
  const Tool tool;
  const ToolResult first = tool.run(small("compile", {"--mask", "causal && window(64, 0)"}));
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.err, "");  // no terminal, no progress
  const nlohmann::json kernel = first.json();
  EXPECT_EQ(kernel["cached"], false);
  EXPECT_EQ(kernel["arch"], "sm_90a");
  EXPECT_EQ(kernel["config"]["tile_kv"], 32);
  EXPECT_TRUE(kernel["config"]["q_in_registers"].is_boolean());
  EXPECT_GT(kernel["registers"], 16);
  EXPECT_EQ(kernel["spill_bytes"], 0);
  EXPECT_GT(kernel["smem_bytes"], 0);
  EXPECT_GT(kernel["cubin_bytes"], 1000);
  EXPECT_GT(kernel["compile_ms"], 0);

  const nlohmann::json second = tool.run(small("compile", {"--mask", "causal && window(64, 0)"})).json();
  EXPECT_EQ(second["cached"], true);
  EXPECT_EQ(second["key"], kernel["key"]);
  EXPECT_NE(tool.run(small("compile", {"--mask", "causal && window(65, 0)"})).json()["key"], kernel["key"]);
}

TEST(CliCompile, ADamagedEntryIsCompiledAnew) {
  const Tool tool;
  const std::string key = tool.run(small("compile")).json().value("key", "");
  ASSERT_EQ(key.size(), 32u);
  const std::string path = tool.cache() + "/v1/" + key.substr(0, 2) + "/" + key + ".bin";
  std::string text = read_text(path);
  ASSERT_GT(text.size(), 1000u);
  text[text.size() / 2] ^= 1;
  write_text(path, text);
  EXPECT_EQ(tool.run({"cache", "verify"}).status, 1);
  const ToolResult again = tool.run(small("compile"));
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.json()["cached"], false);
  EXPECT_THAT(again.err, HasSubstr("warning"));
  EXPECT_EQ(tool.run({"cache", "verify"}).status, 0);
  EXPECT_EQ(tool.run(small("compile")).json()["cached"], true);
}

TEST(CliCompile, ACacheMovesToAnotherMachine) {
  const Tool here;
  const std::string archive = here.folder / "archive";
  ASSERT_EQ(here.run(small("compile")).status, 0);
  ASSERT_EQ(here.run({"cache", "export", archive}).status, 0);
  Tool offline;
  offline.environment = {"JIT_ATTENTION_OFFLINE=1"};
  const ToolResult missing = offline.run(small("compile"));
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("JIT_ATTENTION_OFFLINE"));
  ASSERT_EQ(offline.run({"cache", "import", archive}).status, 0);
  EXPECT_EQ(offline.run(small("compile")).json()["cached"], true);
}

TEST(CliCompile, SeveralTargetsGiveAList) {
  const Tool tool;
  const ToolResult result = tool.run(small("compile", {"--arch", "sm_80"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const nlohmann::json kernels = result.json();
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0]["arch"], "sm_90a");
  EXPECT_EQ(kernels[1]["arch"], "sm_80");
  const ToolResult text = tool.run(
      {"compile", "--arch", "sm_80", "--head-dim", "32", "--config", "tile_q=64 tile_kv=32 warps=4"});
  EXPECT_THAT(text.out, HasSubstr("from the cache"));
}

// The best config has many keys a tile, and as few stages as fit beside them: the best one with few has others.
TEST(CliCompile, WhatGoesWithTheFieldsOfAConfigIsChosen) {
  const Tool tool;
  const ToolResult result = tool.run(
      {"compile", "--arch", "sm_90a", "--dtype", "fp8_e4m3", "--head-dim", "64", "--config", "tile_kv=32"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(" tile_kv=32 "));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("needs")));
}

TEST(CliCompile, FunctorsComeFromFiles) {
  const Tool tool;
  write_text(
      tool.folder / "mask.txt",
      "// constant: stripe = 16\n// tensor: ids int32\nreturn q / stripe == k / stripe && ids[q] == ids[k];\n"
      "// classify:\nreturn k_begin >= q_end + stripe ? TileClass::empty : TileClass::partial;\n");
  write_text(tool.folder / "score.txt", "return score + 1.0f;\n");
  const std::vector<std::string> files = {"--mask-file", "stripes=" + (tool.folder / "mask.txt"),
                                          "--score-file", "plus=" + (tool.folder / "score.txt")};
  const ToolResult implied = tool.run(small("compile", files));
  ASSERT_EQ(implied.status, 0) << implied.err;
  EXPECT_THAT(implied.json()["spec"].get<std::string>(), HasSubstr("mask=text(stripes) score=text(plus)"));
  std::vector<std::string> named = files;
  named.insert(named.end(), {"--mask", "causal && text(stripes)", "--score", "softcap(20), text(plus)"});
  EXPECT_EQ(tool.run(small("compile", named)).status, 0);
}

TEST(CliCompile, ErrorsInAFunctorPointIntoItsFile) {
  const Tool tool;
  write_text(tool.folder / "mask.txt", "// constant: stripe = 16\n\nreturn q < strip;\n");
  const ToolResult result =
      tool.run(small("compile", {"--mask-file", "stripes=" + (tool.folder / "mask.txt")}));
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("stripes:3: error"));
  EXPECT_THAT(result.err, HasSubstr("strip"));
}

TEST(CliCompile, ProgressShowsOnATerminalOnly) {
  Tool tool;
  tool.terminal = true;
  const ToolResult result = tool.run(small("compile"));
  ASSERT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("] 0/1 compiling"));
  EXPECT_THAT(result.err, ::testing::EndsWith("\r\x1b[K"));
  EXPECT_TRUE(result.json().is_object());
}

TEST(CliDump, WritesEverythingThatCanBeRead) {
  const Tool tool;
  const std::string out = tool.folder / "out/deep";
  const ToolResult result = tool.run(small("dump", {"--out", out}));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* name :
       {"kernel.cu", "kernel.ptx", "kernel.cubin", "report.json", "templates/base/params.cuh"}) {
    EXPECT_GT(std::filesystem::file_size(out + "/" + name), 0u) << name;
  }
  EXPECT_THAT(read_text(out + "/kernel.ptx"), HasSubstr(".target sm_90a"));
  EXPECT_TRUE(nlohmann::json::parse(read_text(out + "/report.json"), nullptr, false).is_object());
  const nlohmann::json report = result.json();
  const bool has_sass = std::filesystem::exists(out + "/kernel.sass");
  EXPECT_EQ(report["sass_missing"].get<std::string>().empty(), has_sass);
  for (const auto& path : report["written"]) EXPECT_TRUE(std::filesystem::exists(path.get<std::string>()));
}

TEST(CliDump, ListsWhatItWroteOrWhyNot) {
  const Tool tool;
  const std::string out = tool.folder / "out";
  const ToolResult result = tool.run({"dump", "--arch", "sm_90a", "--head-dim", "32", "--config",
                                      "tile_q=64 tile_kv=32 warps=4", "--out", out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(out + "/kernel.cu\n"));
  const bool has_sass = std::filesystem::exists(out + "/kernel.sass");
  EXPECT_THAT(result.out, HasSubstr(has_sass ? "kernel.sass" : "there is no SASS because"));
}

// A disk that is full, and one that is read-only: what lay there stays, and nothing is added.
TEST(CliDump, WritesAllOrNothing) {
  const Tool tool;
  const std::string disk = tool.folder / "disk";
  std::filesystem::create_directory(disk);
  for (const auto& [option, why] :
       {std::pair{"size=64k", "No space left on device"}, {"ro", "Read-only file system"}}) {
    const bool is_full = std::string(option) != "ro";
    const std::string mounts = fmt::format("mount -t tmpfs -o {1} tmpfs '{0}'", disk, option);
    const ToolResult result = tool.run_mounted(
        is_full ? mounts + fmt::format(" && mkdir '{0}/out' && echo old > '{0}/out/kernel.cu'", disk)
                : mounts,
        small("dump", {"--out", disk + "/out"}),
        fmt::format("cd '{}' && find . -type f | sort && cat out/kernel.cu", disk));
    if (result.status == status_not_mounted) GTEST_SKIP() << "this process may not mount";
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_EQ(result.out, is_full ? "./out/kernel.cu\nold\n" : "");
  }
}

TEST(CliDump, RefusesAndFailsInOneSentence) {
  const Tool tool;
  write_text(tool.folder / "kernel.cu", "return true;\n");
  expect_bad_input(tool.run(small("dump", {"--out", tool.folder.path(), "--mask-file",
                                           "mine=" + (tool.folder / "kernel.cu")})),
                   "choose another output");
  EXPECT_EQ(read_text(tool.folder / "kernel.cu"), "return true;\n");
  // A mask where a template will be: one that every kernel includes.
  const std::string out = tool.folder / "out", mask = out + "/templates/base/params.cuh";
  std::filesystem::create_directories(out + "/templates/base");
  write_text(mask, "return true;\n");
  expect_bad_input(tool.run(small("dump", {"--out", out, "--mask-file", "mine=" + mask})),
                   "choose another output");
  std::filesystem::create_hard_link(mask, tool.folder / "twin");
  expect_bad_input(tool.run(small("dump", {"--out", out, "--mask-file", "mine=" + (tool.folder / "twin")})),
                   "choose another output");
  EXPECT_EQ(read_text(mask), "return true;\n");
  write_text(tool.folder / "occupied", "");
  const ToolResult result = tool.run(small("dump", {"--out", tool.folder / "occupied"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("occupied/kernel.cu cannot be written: "));
}

}  // namespace
}  // namespace jit::testing
