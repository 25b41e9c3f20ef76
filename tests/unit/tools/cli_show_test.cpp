// jit-attention show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/cli_testing.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

TEST(CliShow, CountsTilesAndDrawsThem) {
  const Tool tool;
  const std::string picture = tool.folder / "mask.svg", text = tool.folder / "near.txt";
  std::ofstream(text) << "// constant: width = 64\nreturn q - k >= 0 && q - k < width;\n";
  const ToolResult shown =
      tool.run({"show", "--mask-file", "near=" + text, "--seqlen-q", "256", "--seqlen-kv", "256", "--tile-q",
                "64", "--tile-kv", "64", "--out", picture, "--json"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(shown.json()["partial"], 7);
  EXPECT_EQ(shown.json()["empty"], 9);
  std::ifstream file(picture);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(file), {}), HasSubstr("43.8 % are computed"));
  EXPECT_THAT(tool.run({"show", "--mask", "causal", "--seqlen-q", "256", "--seqlen-kv", "256"}).out,
              HasSubstr("full 1, partial 2, empty 1 of 4: 75.0 % are computed"));
}

TEST(CliShow, RefusesWhatIsNotThere) {
  const Tool tool;
  const ToolResult no_entry = tool.run({"show", "--mask", "causal", "--entry", "3"});
  EXPECT_EQ(no_entry.status, 2);
  EXPECT_THAT(no_entry.err, HasSubstr("place.batch = 3; it must be from 0 to 0"));
  EXPECT_EQ(tool.run({"show", "--mask", "causal", "--tile-q", "0"}).status, 2);
  EXPECT_EQ(tool.run({"show", "--mask", "causal", "--out", "/nonexistent/mask.svg"}).status, 1);
}

}  // namespace
}  // namespace jit::testing
