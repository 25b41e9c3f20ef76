// Configs that are timed are compiled each for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/tuning/time_configs.h"
#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

using ::testing::HasSubstr;
using testing::small_config;
using testing::small_spec;

TEST(TimeConfigs, AConfigThatCannotBeCompiledLeavesTheOthersAlone) {
  const KernelConfig refused_by_the_template = parse_config("tile_q=24", small_config());
  const KernelConfig other = parse_config("tile_kv=32", small_config());
  std::vector<ConfigTiming> timings = {
      {.configs = {refused_by_the_template}},
      {.configs = {small_config()}},
      {.configs = {small_config()}, .trouble = "known before"},
      {.configs = {other}},
  };
  const Context context(testing::private_settings());
  const ForwardProblem problem(small_spec(), {.name = "a GPU", .arch = {9, 0, 0}}, {});
  compile_configs(*Access::state(context), problem, timings);

  EXPECT_TRUE(timings[0].kernels.empty());
  EXPECT_THAT(timings[0].trouble, HasSubstr("static assertion"));
  EXPECT_TRUE(timings[2].kernels.empty());
  EXPECT_EQ(timings[2].trouble, "known before");
  for (const std::size_t good : {1u, 3u}) {
    EXPECT_EQ(timings[good].trouble, "");
    ASSERT_EQ(timings[good].kernels.size(), 1u);
    EXPECT_EQ(timings[good].kernels[0].config(), timings[good].configs[0]);
    EXPECT_GT(timings[good].kernels[0].compile_ms(), 0);
    EXPECT_GT(timings[good].kernels[0].resources().registers, 0);
  }
}

}  // namespace
}  // namespace jit
