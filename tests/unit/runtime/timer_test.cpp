#include "runtime/timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

TEST(Timer, SummarizesSamples) {
  const Timing timing = summarize({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(timing.median_us, 3);
  EXPECT_DOUBLE_EQ(timing.min_us, 1);
  EXPECT_DOUBLE_EQ(timing.spread, 2.0 / 3);
  EXPECT_THAT(timing.samples_us, testing::ElementsAre(5, 1, 4, 2, 3));
  EXPECT_DOUBLE_EQ(summarize({1, 2}).median_us, 1.5);
  EXPECT_DOUBLE_EQ(summarize({7}).median_us, 7);
  EXPECT_DOUBLE_EQ(summarize({7}).spread, 0);
  EXPECT_DOUBLE_EQ(summarize({}).median_us, 0);
}

}  // namespace
}  // namespace jit
