// The tool without NVRTC and without a GPU: usage, input, info.
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cli_testing.h"
#include "tests/support/process_limits.h"
#include "tools/jit_attention/command.h"
#include "tools/jit_attention/npy.h"
#include "tools/jit_attention/number_options.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using tool::Array;
using tool::zeros;

TEST(CliUsage, HelpGoesToStandardOutput) {
  const Tool tool;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"compile", "--help"},
                                             {"cache", "--help"},
                                             {"cache", "list", "--help"},
                                             {"--version"}}) {
    const ToolResult result = tool.run(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out, "");
    EXPECT_EQ(result.err, "");
  }
  EXPECT_THAT(tool.run({"compile", "--help"}).out, HasSubstr("// constant: window = 128"));
}

TEST(CliUsage, BadCommandLines) {
  const Tool tool;
  expect_bad_input(tool.run({}), "subcommand");
  expect_bad_input(tool.run({"nonsense"}), "there is no command 'nonsense'");
  expect_bad_input(tool.run({"info", "--nonsense"}), "--nonsense");
  expect_bad_input(tool.run({"compile", "--arch"}), "--arch");
  expect_bad_input(tool.run({"compile", "--head-dim", "wide"}), "--head-dim");
  expect_bad_input(tool.run({"compile"}), "--arch is needed");
  expect_bad_input(tool.run({"dump", "--arch", "sm_90a"}), "--out");
  expect_bad_input(tool.run({"compile", "--arch", ""}), "--arch is needed");
  expect_bad_input(tool.run({"dump", "--arch", "sm_90a", "--out", ""}), "--out: must not be empty");
  expect_bad_input(tool.run({"cache"}), "subcommand");
  expect_bad_input(tool.run({"cache", "nonsense"}), "there is no command 'nonsense'");
  expect_bad_input(tool.run({"run", "--nonsense", "4"}), "there is no option '--nonsense'");
  expect_bad_input(tool.run({"dump", "--out", "there", "--v-along-sequence"}),
                   "--v-along-sequence is no option any more: v of fp8 has a row for each key");
  for (const char* bytes : {"-1", "1e3", "all", "18446744073709551616"}) {
    expect_bad_input(
        tool.run({"cache", "prune", "--max-bytes", bytes}),
        fmt::format("--max-bytes: is {}; it must be a whole number from 0 to 18446744073709551615", bytes));
  }
  expect_bad_input(tool.run({"bench", "--samples", "0"}), "--samples");
  expect_bad_input(tool.run({"bench", "--batch", "0"}), "--batch");
  for (const char* seconds : {"-3", "nan", "soon"}) {
    expect_bad_input(tool.run({"tune", "--seconds", seconds}),
                     fmt::format("--seconds: is {}; it must be a positive number", seconds));
  }
}

// Every option of a number, of every command: decimal digits, or one sentence.
TEST(CliUsage, NumbersAreDecimal) {
  const auto words_of = [](std::vector<std::string> path, const CLI::Option& option,
                           const std::string& text) {
    path.push_back("--" + option.get_lnames().at(0));
    std::string value = text;
    for (int i = 1; i < option.get_expected_min(); ++i) value += "," + text;
    path.push_back(value);
    return path;
  };
  CLI::App parser;  // which forgets at each parse what it was told before
  tool::Commands parsed;
  tool::add_all(parser, parsed);
  int numbers = 0;
  const std::function<void(const CLI::App&, std::vector<std::string>)> visit =
      [&](const CLI::App& app, const std::vector<std::string>& path) {
        for (const CLI::Option* option : app.get_options()) {
          const std::string type = option->get_type_name();
          if (type != "INT" && type != "UINT" && type != "FLOAT") continue;
          ++numbers;
          const char* const rule = type == "FLOAT" ? "number" : "it must be a whole number from ";
          for (const char* text :
               {"a", "0x10", "1'000", "1e400", "18446744073709551616", "-9223372036854775809"}) {
            if (type == "FLOAT" &&
                std::isdigit(static_cast<unsigned char>(text[std::strlen(text) - 1])) != 0 &&
                std::string(text).find_first_of("x'e") == std::string::npos)
              continue;
            std::vector<std::string> words = words_of(path, *option, text);
            std::reverse(words.begin(), words.end());
            try {
              parser.parse(words);
              ADD_FAILURE() << option->get_name() << " takes " << text;
            } catch (const CLI::ParseError& error) {
              EXPECT_THAT(error.what(), ::testing::StartsWith(option->get_name() + ": is " + text + "; "));
              EXPECT_THAT(error.what(), HasSubstr(rule));
            }
          }
        }
        for (const CLI::App* command : app.get_subcommands({})) {
          std::vector<std::string> below = path;
          below.push_back(command->get_name());
          visit(*command, below);
        }
      };
  CLI::App app;
  tool::Commands commands;
  tool::add_all(app, commands);
  visit(app, {});
  EXPECT_GT(numbers, 40);
  std::string text = "040";
  EXPECT_EQ(tool::read_whole(text, {0, 100}), "");
  EXPECT_EQ(text, "40");
  for (std::string edge : {"-3", "7", "18446744073709551615"})
    EXPECT_EQ(tool::read_whole(edge, {-3, ~std::uint64_t{0}}), "") << edge;
  for (std::string outside : {"-4", "18446744073709551616", "", " 1", "+1", "1 "})
    EXPECT_NE(tool::read_whole(outside, {-3, ~std::uint64_t{0}}), "") << outside;
}

TEST(CliUsage, BadSpecs) {
  const Tool tool;
  const auto compile = [&](const std::string& option, const std::string& value) {
    return tool.run({"compile", "--arch", "sm_90a", option, value});
  };
  expect_bad_input(tool.run({"compile", "--arch", "sm_1"}), "\"sm_1\"");
  expect_bad_input(compile("--dtype", "fp64"), "fp64");
  expect_bad_input(compile("--dtype", "fp32"), "must be bf16 or fp16");
  expect_bad_input(compile("--head-dim", "100"), "nearest supported: 104");
  expect_bad_input(compile("--gqa-ratio", "0"), "gqa_ratio");
  expect_bad_input(compile("--alignment", "3"), "alignment");
  expect_bad_input(compile("--seqlen-q", "-1"), "seqlen_q");
  expect_bad_input(compile("--softmax-scale", "-1"), "softmax_scale");
  expect_bad_input(compile("--mask", "casual"), "unknown mask 'casual'");
  expect_bad_input(compile("--mask", "causal &&\n"), "unknown mask");
  expect_bad_input(compile("--mask", "text(mine)"), "no text functor 'mine'");
  expect_bad_input(compile("--score", "softcap(-1)"), "cap");
  expect_bad_input(compile("--mask-file", "mine=/nonexistent"), "/nonexistent");
  expect_bad_input(compile("--mask-file", "mine"), "name=file");
  write_text(tool.folder / "true.txt", "return true;\n");
  for (const char* option : {"--mask-file", "--score-file"}) {
    const std::string mine = "mine=" + (tool.folder / "true.txt");
    expect_bad_input(tool.run({"compile", "--arch", "sm_90a", option, mine, option, mine}),
                     fmt::format("{} mine is given twice", option));
  }
  expect_bad_input(compile("--config", "tile_z=3"), "'tile_z=3'");
  expect_bad_input(compile("--config", "tile_q=wide"), "tile_q");
  expect_bad_input(compile("--config", "tile_q=1"), "tile_q = 1");
  write_text(tool.folder / "include.txt", "#include <cuda.h>\nreturn true;\n");
  expect_bad_input(compile("--mask-file", "mine=" + (tool.folder / "include.txt")), "line 1");
}

TEST(CliUsage, BadProblems) {
  const Tool tool;
  expect_bad_input(tool.run({"bench", "--heads", "8", "--gqa-ratio", "3"}), "--gqa-ratio 3");
  expect_bad_input(tool.run({"tune", "--tensor", "ids=/nonexistent"}), "'ids'");
  expect_bad_input(tool.run({"tune", "--exhaustive", "--seconds", "5"}), "--exhaustive excludes --seconds");
  expect_bad_input(tool.run({"tune", "--deterministic"}), "--deterministic requires --backward");
  expect_bad_input(tool.run({"tune", "--backward", "--kv-dtype", "fp8_e4m3"}),
                   "spec.kv_dtype = fp8_e4m3 has no backward");
  expect_bad_input(
      tool.run({"tune", "--backward", "--dtype", "fp8_e4m3"}),
      "spec.dtype = fp8_e4m3 has no backward: gradients are those of bf16 and fp16; nearest supported: "
      "bf16");
  expect_bad_input(tool.run({"tune", "--backward", "--sequences-kv", "paged", "--page-size", "16"}),
                   "spec.sequences_kv = paged has no backward so far");
  expect_bad_input(tool.run({"tune", "--mask", "document", "--tensor", "document_ids_q=/nonexistent"}),
                   "/nonexistent");
  write_text(tool.folder / "ids.txt", "// tensor: ids int32\nreturn ids[q] == 0;\n");
  expect_bad_input(tool.run({"bench", "--mask-file", "mine=" + (tool.folder / "ids.txt")}), "--tensor ids=");
  write_npy(OutputFile(tool.folder / "lengths.npy"), zeros(DType::int64, {7}));
  expect_bad_input(tool.run({"bench", "--batch", "2", "--mask", "prefix_lengths", "--tensor",
                             "prefix_lengths=" + (tool.folder / "lengths.npy")}),
                   "prefix_lengths: has batch = 7; it must be 2");
}

TEST(CliUsage, BadSettings) {
  Tool tool;
  tool.environment = {"JIT_ATTENTION_TUNING=sometimes"};
  expect_bad_input(tool.run({"info"}), "JIT_ATTENTION_TUNING is \"sometimes\"");
}

TEST(CliUsage, NoGpuIsOneSentence) {
  const Tool tool;
  for (const char* command : {"tune", "bench"}) {
    for (const char* device : {"", "cuda:0", "emulated:sm_80"}) {
      const bool is_emulated = std::string(device) == "emulated:sm_80";
      const ToolResult result = *device == 0 ? tool.run({command}) : tool.run({command, "--device", device});
      EXPECT_EQ(result.status, 1);
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
      EXPECT_EQ(result.err.find("CUDA driver") != std::string::npos, !is_emulated) << result.err;
      EXPECT_EQ(result.err.find("JIT_ATTENTION_DEVICE=emulated:sm_90a") != std::string::npos, !is_emulated)
          << result.err;
      EXPECT_EQ(result.err.find(std::string(command) + " measures time") != std::string::npos, is_emulated)
          << result.err;
    }
  }
  for (const char* device : {"auto", "tpu:0", "cuda:-1", "cuda:", "cuda:1x"}) {
    expect_bad_input(tool.run({"bench", "--device", device}), "--device must be cuda:N or emulated:ARCH");
  }
  expect_bad_input(tool.run({"info", "--device", "cuda:-1"}), "not 'cuda:-1'");
  expect_bad_input(tool.run({"bench", "--device", "emulated:sm_1"}), "emulated:sm_90a");
}

TEST(CliUsage, UnwritableStandardOutputIsAFailure) {
  const Tool tool;
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"info"}, {"--help"}, {"cache", "list", "--help"}, {"--version"}}) {
    for (const char* redirection : {">/dev/full", ">&-"}) {
      const ToolResult result = tool.run_redirected(redirection, arguments);
      EXPECT_EQ(result.status, 1) << arguments[0] << redirection;
      EXPECT_EQ(result.err, "jit-attention: standard output cannot be written\n")
          << arguments[0] << redirection;
    }
  }
}

// A message that nobody can read changes nothing.
TEST(CliUsage, UnwritableStandardErrorCostsTheMessageOnly) {
  Tool tool;
  for (const char* redirection : {"2>&-", "2>/dev/full", "2>&- <&-"}) {
    EXPECT_EQ(tool.run_redirected(redirection, {"compile", "--arch", "sm_90a", "--mask", "casual"}).status,
              2);
    EXPECT_EQ(tool.run_redirected(redirection, {"nonsense"}).status, 2);
    EXPECT_EQ(tool.run_redirected(redirection, {"bench", "--device", "cuda:0"}).status, 1);
  }
  // A warning: the cache folder is not used.
  ASSERT_EQ(mkdir(tool.cache().c_str(), 0700), 0);
  ASSERT_EQ(chmod(tool.cache().c_str(), 0777), 0);
  ASSERT_THAT(tool.run({"info"}).err, HasSubstr("warning"));
  for (const char* redirection : {"2>&-", "2>/dev/full"}) {
    const ToolResult result = tool.run_redirected(redirection, {"info"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("Settings"));
  }
}

TEST(CliInfo, SaysWhatThereIsAndWhyNot) {
  Tool tool;
  tool.environment = {"JIT_ATTENTION_TUNING=off"};
  const ToolResult result = tool.run({"info"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr(tool.cache() + " (JIT_ATTENTION_CACHE_DIR)"));
  EXPECT_THAT(result.out, HasSubstr("JIT_ATTENTION_TUNING = off\n"));

  const nlohmann::json info = tool.run({"info", "--json"}).json();
  ASSERT_TRUE(info.is_object());
  EXPECT_THAT(info["no_gpu"].get<std::string>(), HasSubstr("CUDA driver"));
  EXPECT_TRUE(info["devices"].empty());
  EXPECT_THAT(result.out, HasSubstr("no GPU: "));
  EXPECT_EQ(info["cache"]["directory"], tool.cache());
  EXPECT_EQ(info["tuning"], "off");
  EXPECT_TRUE(info["nvrtc"].contains("path") || info["nvrtc"].contains("missing"));
  EXPECT_GE(info["settings"].size(), 9u);
}

TEST(CliInfo, SaysWhichPacksAreUsed) {
  Tool tool;
  EXPECT_TRUE(tool.run({"info", "--json"}).json()["packs"].empty());
  EXPECT_THAT(tool.run({"info"}).out, HasSubstr("Packs\n  none\n"));
  write_text(tool.folder / "some.pack", "no pack");
  tool.environment = {"JIT_ATTENTION_PACK=" + (tool.folder / "some.pack")};
  const nlohmann::json pack = tool.run({"info", "--json"}).json()["packs"][0];
  EXPECT_EQ(pack["path"], tool.folder / "some.pack");
  EXPECT_THAT(pack["refusal"].get<std::string>(), HasSubstr("some.pack"));
  EXPECT_THAT(tool.run({"info"}).out, HasSubstr("Packs\n  pack "));
}

TEST(CliInfo, ListsTheDevicesThatAreAskedFor) {
  Tool tool;
  const nlohmann::json none = tool.run({"info", "--device", "cuda:0", "--json"}).json();
  EXPECT_TRUE(none["devices"].empty());
  EXPECT_THAT(none["no_gpu"].get<std::string>(), HasSubstr("CUDA driver"));
  tool.environment = {"JIT_ATTENTION_DEVICE=emulated:sm_80,sm_120a"};
  const nlohmann::json two = tool.run({"info", "--json"}).json();
  ASSERT_EQ(two["devices"].size(), 2u);
  EXPECT_EQ(two["devices"][0]["emulated"], true);
  EXPECT_THAT(tool.run({"info"}).out,
              HasSubstr("emulated:sm_80  emulated sm_80, sm_80, 108 multiprocessors"));
  EXPECT_EQ(two["devices"][0]["device"], "emulated:sm_80");
  EXPECT_EQ(two["devices"][1]["device"], "emulated:sm_120a");
  EXPECT_FALSE(two.contains("no_gpu"));
  // The command line decides.
  EXPECT_EQ(tool.run({"info", "--device", "emulated:sm_90", "--json"}).json()["devices"][0]["arch"], "sm_90");
  tool.environment = {"JIT_ATTENTION_DEVICE=emulated:sm_7"};
  expect_bad_input(tool.run({"info"}), "JIT_ATTENTION_DEVICE is \"emulated:sm_7\"");
}

TEST(CliInfo, AMissingCompilerIsReported) {
  Tool tool;
  tool.environment = {"JIT_ATTENTION_NVRTC=/nonexistent"};
  const ToolResult result = tool.run({"info", "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.json()["nvrtc"]["missing"].get<std::string>(), HasSubstr("/nonexistent"));
  const ToolResult compile = tool.run({"compile", "--arch", "sm_90a"});
  EXPECT_EQ(compile.status, 1);
  EXPECT_THAT(compile.err, HasSubstr("/nonexistent"));
}

TEST(CliInfo, AFolderThatIsNotUsedIsToldOfOnce) {
  const Tool tool;
  ASSERT_EQ(mkdir(tool.cache().c_str(), 0700), 0);
  ASSERT_EQ(chmod(tool.cache().c_str(), 0777), 0);
  const ToolResult result = tool.run({"info"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("nothing is kept on disk: " + tool.cache() + " belongs to another user or"));
}

class CliRun : public ::testing::Test {
 protected:
  // q, k and v of these shapes in files, and the command line that names them.
  void SetUp() override {
    save("q", zeros(DType::fp32, {1, 4, 2, 64}));
    save("k", zeros(DType::fp32, {1, 8, 1, 64}));
    save("v", zeros(DType::fp16, {1, 8, 1, 32}));
  }
  void save(const std::string& name, const Array& array) { write_npy(OutputFile(file(name)), array); }
  std::string file(const std::string& name) const { return tool_.folder / (name + ".npy"); }
  ToolResult run(std::vector<std::string> more = {}, const std::string& out = "o") const {
    std::vector<std::string> arguments = {"run", "--q",     file("q"), "--k",    file("k"),
                                          "--v", file("v"), "--out",   file(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool_.run(arguments);
  }

  Tool tool_;
};

TEST_F(CliRun, AGpuThatIsInsistedOnMustBeThere) {
  const ToolResult result = run({"--device", "cuda:0"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("CUDA driver"));
  EXPECT_FALSE(std::filesystem::exists(file("o")));
}

TEST_F(CliRun, RefusesWrongShapesAndTypes) {
  save("k", zeros(DType::fp32, {1, 8, 1, 32}));
  expect_bad_input(run(), "k: has head_dim = 32; it must be 64");
  save("k", zeros(DType::fp32, {1, 8, 64}));
  expect_bad_input(run(), "k.npy is float32 (1, 8, 64)");
  save("k", zeros(DType::int32, {1, 8, 1, 64}));
  expect_bad_input(run(), "must be float32 or float16");
  save("k", zeros(DType::fp32, {1, 8, 3, 64}));
  expect_bad_input(run(), "multiple");
  save("k", zeros(DType::fp32, {1, 8, 0, 64}));
  expect_bad_input(run(), "multiple");
  save("k", zeros(DType::fp32, {2, 8, 1, 64}));
  expect_bad_input(run(), "k: has batch = 2; it must be 1");
  save("k", zeros(DType::fp32, {1, 9, 1, 64}));
  expect_bad_input(run(), "v: has seqlen = 8; it must be 9");
  save("k", zeros(DType::fp32, {1, 8, 1, 64}));
  save("q", zeros(DType::fp32, {1, 4, 2, 0}));
  expect_bad_input(run(), "head_dim = 0");
}

TEST_F(CliRun, AHalfPrecisionFileSaysWhatToComputeIn) {
  for (const char* name : {"q", "k", "v"}) save(name, zeros(DType::fp16, {1, 4, 2, 64}));
  for (const char* dtype : {"bf16", "fp8_e4m3"}) {
    const bool is_contradicted = std::string(dtype) == "bf16";
    expect_bad_input(run({"--dtype", dtype}), is_contradicted
                                                  ? "--dtype is bf16, and " + file("q") + " is float16"
                                                  : "it must be uint8");
  }
}

TEST_F(CliRun, PaddingIsPartOfTheKeys) {
  expect_bad_input(run({"--cache-leftpad", "9"}),
                   "--cache-leftpad: 9 rows before the first key of sequence 0");
  expect_bad_input(run({"--cache-leftpad", "5", "--seqlens-kv", "4"}), "which has 4 rows in all");
}

TEST_F(CliRun, RefusesBrokenAndMissingFiles) {
  write_text(file("k"), "not an array");
  expect_bad_input(run(), "not in .npy format");
  std::filesystem::remove(file("k"));
  expect_bad_input(run(), "no such file");
}

TEST_F(CliRun, ChecksTensors) {
  save("ids", zeros(DType::int64, {1, 4}));
  expect_bad_input(run({"--mask", "document"}), "document_ids_q: is read by the mask");
  expect_bad_input(run({"--tensor", "ids=" + file("ids")}), "neither mask nor score reads a tensor 'ids'");
  const std::vector<std::string> twice = {"--mask",   "document",
                                          "--tensor", "document_ids_q=" + file("ids"),
                                          "--tensor", "document_ids_kv=" + file("ids")};
  expect_bad_input(run(twice), "document_ids_kv: has seqlen_kv = 4; it must be 8");
  save("slopes", zeros(DType::int32, {2}));
  expect_bad_input(run({"--score", "alibi", "--tensor", "alibi_slopes=" + file("slopes")}),
                   "must be float32");
}

TEST_F(CliRun, NeverWritesOverAnInput) {
  const std::string before = read_text(file("q"));
  expect_bad_input(run({}, "q"), "choose another output");
  std::filesystem::create_symlink(file("q"), file("link"));
  expect_bad_input(run({}, "link"), "choose another output");
  std::filesystem::create_hard_link(file("q"), file("hard"));
  expect_bad_input(run({}, "hard"), "choose another output");
  expect_bad_input(run({"--lse", tool_.folder / "./v.npy"}), "choose another output");
  expect_bad_input(run({"--counts", file("q")}), "choose another output");
  EXPECT_EQ(read_text(file("q")), before);
}

TEST_F(CliRun, RefusesTwoOutputsThatAreOneFile) {
  std::filesystem::create_symlink("o.npy", file("dangling"));
  std::filesystem::create_directory_symlink(".", tool_.folder / "here");
  for (const std::string& lse :
       {file("o"), tool_.folder / "./o.npy", tool_.folder / "here/o.npy", file("dangling")}) {
    expect_bad_input(run({"--lse", lse}),
                     fmt::format("--out {} and --lse {} are the same file; choose another "
                                 "output",
                                 file("o"), lse));
  }
  expect_bad_input(run({"--lse", file("l"), "--listing", file("l")}),
                   fmt::format("--lse {0} and --listing {0} are the same file", file("l")));
  expect_bad_input(run({"--counts", file("dangling")}), "--out " + file("o") + " and --counts");
  write_text(file("o"), "");
  std::filesystem::create_hard_link(file("o"), file("twin"));
  expect_bad_input(run({"--lse", file("twin")}), "are the same file");
  // Standard output is not replaced, but the file that it is would be.
  const ToolResult listing =
      tool_.run_redirected(">" + file("o"), {"run", "--q", file("q"), "--k", file("k"), "--v", file("v"),
                                             "--out", file("o"), "--listing", "/dev/stdout"});
  EXPECT_THAT(listing.err, HasSubstr("are the same file"));
  // A device file may be written by two options: here the device is the first error.
  EXPECT_THAT(run({"--lse", "/dev/null", "--counts", "/dev/null", "--device", "cuda:0"}).err,
              HasSubstr("CUDA driver"));
}

TEST_F(CliRun, SaysBeforeItComputesWhatCannotBeWritten) {
  const auto refusal = [&](const std::string& option, const std::string& path) {
    std::vector<std::string> arguments = {option, path, "--device", "cuda:0"};
    const ToolResult result = option == "--out" ? run({"--device", "cuda:0"}, path) : run(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal("--out", "missing/o"), HasSubstr("--out: " + file("missing/o") + " cannot be written"));
  for (const char* option : {"--lse", "--counts", "--listing"}) {
    EXPECT_THAT(
        refusal(option, tool_.folder / "missing/file"),
        HasSubstr(fmt::format("{}: {} cannot be written: folder ", option, tool_.folder / "missing/file")));
    EXPECT_THAT(refusal(option, tool_.folder.path()), HasSubstr("it is a folder"));
  }
  // The folder and an old output are there, and may not be written.
  std::filesystem::create_directory(tool_.folder / "locked");
  write_text(file("locked/old"), "old");
  ASSERT_EQ(chmod((tool_.folder / "locked").c_str(), 0500), 0);
  write_text(file("fixed"), "old");
  ASSERT_EQ(chmod(file("fixed").c_str(), 0400), 0);
  without_privileges([&] {
    for (const char* name : {"locked/old", "locked/new", "fixed"})
      EXPECT_THAT(refusal("--out", name), HasSubstr("Permission denied")) << name;
  });
  expect_bad_input(run({"--counts", ""}), "--counts: must not be empty");
}

}  // namespace
}  // namespace jit::testing
