// jit-attention bench: the rows of its report are compiled, each for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context_state.h"
#include "tests/compile/compile_testing.h"
#include "tools/jit_attention/bench_rows.h"

namespace jit::tool {
namespace {

using jit::testing::small_config;
using jit::testing::small_spec;
using ::testing::HasSubstr;

TEST(BenchRows, ARowThatCannotBeCompiledLeavesTheOthersAlone) {
  const KernelConfig refused_by_the_template = parse_config("tile_q=24", small_config());
  const KernelConfig other = parse_config("tile_kv=32", small_config());
  std::vector<BenchRow> rows = {
      {.name = "refused", .why = "", .config = refused_by_the_template},
      {.name = "good", .why = "", .config = small_config()},
      {.name = "illegal", .why = "", .config = small_config(), .trouble = "known before"},
      {.name = "good, too", .why = "", .config = other},
  };
  const Context context(jit::testing::private_settings());
  ProgressLine progress;
  compile_rows(rows, small_spec(), {jit::testing::sm_90a}, *context.state(), progress);

  EXPECT_FALSE(rows[0].image);
  EXPECT_THAT(rows[0].trouble, HasSubstr("static assertion"));
  EXPECT_EQ(rows[0].trouble.find('\n'), std::string::npos);
  EXPECT_FALSE(rows[2].image);
  EXPECT_EQ(rows[2].trouble, "known before");
  for (const std::size_t good : {1u, 3u}) {
    EXPECT_EQ(rows[good].trouble, "");
    ASSERT_TRUE(rows[good].image);
    EXPECT_THAT(rows[good].image->program.facts,
                ::testing::Contains(::testing::Pair("config", to_string(rows[good].config))));
    EXPECT_GT(rows[good].image->compile_ms, 0);
    EXPECT_GT(rows[good].image->resources.registers, 0);
  }
}

}  // namespace
}  // namespace jit::tool
