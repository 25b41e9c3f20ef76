// Configs that are timed are compiled each for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/access.h"
#include "generator/context_state.h"
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
      {.config = refused_by_the_template},
      {.config = small_config()},
      {.config = small_config(), .trouble = "known before"},
      {.config = other},
  };
  const Context context(testing::private_settings());
  compile_configs(*Access::state(context), small_spec(), {testing::sm_90a}, timings);

  EXPECT_FALSE(timings[0].kernel);
  EXPECT_THAT(timings[0].trouble, HasSubstr("static assertion"));
  EXPECT_FALSE(timings[2].kernel);
  EXPECT_EQ(timings[2].trouble, "known before");
  for (const std::size_t good : {1u, 3u}) {
    EXPECT_EQ(timings[good].trouble, "");
    ASSERT_TRUE(timings[good].kernel);
    EXPECT_EQ(timings[good].kernel->config(), timings[good].config);
    EXPECT_GT(timings[good].kernel->compile_ms(), 0);
    EXPECT_GT(timings[good].kernel->resources().registers, 0);
  }
}

}  // namespace
}  // namespace jit
