#include "generator/tuning/select.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::ElementsAre;

/// Candidates with true times, measured with relative noise.
struct NoisyTimer {
  std::vector<double> times;
  double noise = 0;
  std::mt19937_64 random = std::mt19937_64(reference::test_seed());
  std::vector<int> calls = std::vector<int>(times.size());
  double clock = 0;  ///< seconds

  Selection select(const SelectionPolicy& policy = {}) {
    return select_fastest(
        times.size(),
        [&](std::size_t i) {
          ++calls[i];
          if (times[i] < 0) return times[i];
          std::normal_distribution<double> normal(1, noise);
          clock += times[i];
          return times[i] * normal(random);
        },
        [&] { return clock; }, policy);
  }
};

TEST(SelectFastest, TakesTheFastest) {
  EXPECT_EQ((NoisyTimer{.times = {1.0, 0.5, 0.9}}.select({.seconds = 1e9}).chosen), 1u);
  EXPECT_EQ((NoisyTimer{.times = {1.0}}.select().chosen), 0u);
}

// Candidates half a percent apart, noise of one percent: any may win a single comparison, yet every run must
// choose alike.
TEST(SelectFastest, ChoosesAlikeInEveryRun) {
  std::random_device fresh;
  std::vector<std::size_t> chosen;
  for (int run = 0; run < 60; ++run) {
    NoisyTimer timer{.times = {0.01, 0.00995, 0.0099005, 0.02, 0.008, 0.00804, 0.0099}, .noise = 0.01};
    timer.random.seed(fresh());
    chosen.push_back(timer.select({.seconds = 1e9}).chosen);
  }
  EXPECT_THAT(chosen, ::testing::Each(4u));
}

TEST(SelectFastest, TheFirstWinsTies) {
  for (int run = 0; run < 60; ++run) {
    NoisyTimer timer{.times = {0.01, 0.00998, 0.0101, 0.00995}, .noise = 0.002};
    timer.random.seed(reference::test_seed() + static_cast<std::uint64_t>(run));
    EXPECT_EQ(timer.select({.seconds = 1e9}).chosen, 0u);
  }
  EXPECT_EQ((NoisyTimer{.times = {1.0, 0.985}}.select({.seconds = 1e9}).chosen), 0u);
  EXPECT_EQ((NoisyTimer{.times = {1.0, 0.975}}.select({.seconds = 1e9}).chosen), 1u);
}

TEST(SelectFastest, MeasuresTheHopelessOnce) {
  NoisyTimer timer{.times = {0.01, 0.1, 0.012, 0.0105}};
  const SelectionPolicy policy{.seconds = 1e9};
  const Selection selection = timer.select(policy);
  EXPECT_EQ(selection.chosen, 0u);
  EXPECT_THAT(timer.calls, ElementsAre(policy.opening_rounds + policy.final_rounds, 1, policy.opening_rounds,
                                       policy.opening_rounds + policy.final_rounds));
  EXPECT_EQ(selection.timings[1].samples, 1);
  EXPECT_DOUBLE_EQ(selection.timings[1].median, 0.1);
}

TEST(SelectFastest, FailedCandidatesDropOut) {
  NoisyTimer timer{.times = {1.0, -1, 0.9, -1}};
  const Selection selection = timer.select({.seconds = 1e9});
  EXPECT_EQ(selection.chosen, 2u);
  EXPECT_EQ(timer.calls[1], 1);
  EXPECT_EQ(selection.timings[1].median, 0);
  EXPECT_EQ(selection.timings[1].samples, 0);
}

// A candidate may fail late, when it leads.
TEST(SelectFastest, AFailureInTheFinalsDropsTheLeader) {
  int calls = 0;
  const Selection selection = select_fastest(
      2, [&](std::size_t i) { return i == 0        ? 1.0
                                     : ++calls > 8 ? -1.0
                                                   : 0.5; }, [] { return 0.0; }, {});
  EXPECT_EQ(selection.chosen, 0u);
}

TEST(SelectFastest, StopsWhenTheTimeIsUp) {
  NoisyTimer timer{.times = {1.0, 2.0, 0.1, 0.1}};
  const Selection selection = timer.select({.seconds = 2.5});
  EXPECT_TRUE(selection.out_of_time);
  EXPECT_THAT(timer.calls, ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(selection.chosen, 0u);

  NoisyTimer no_time{.times = {1.0, 0.5}};
  EXPECT_EQ(no_time.select({.seconds = -1}).chosen, 0u);
  EXPECT_THAT(no_time.calls, ElementsAre(1, 0)) << "the default is measured in any case";
  NoisyTimer without_first{.times = {-1, 1.0, 2.0, 0.1}};
  EXPECT_TRUE(without_first.select({.seconds = 2.5}).out_of_time);
  EXPECT_THAT(without_first.calls, ElementsAre(1, 1, 1, 0)) << "also where the first cannot run";
}

TEST(SelectFastest, UsesWhatWasMeasuredSoFar) {
  NoisyTimer timer{.times = {1.0, 0.5}};
  const Selection selection = timer.select({.seconds = 14});  // the opening takes 7.5
  EXPECT_TRUE(selection.out_of_time);
  EXPECT_EQ(selection.chosen, 1u);
}

TEST(SelectFastest, AFewOutliersDoNotDecide) {
  int call = 0;
  const Selection selection = select_fastest(
      2, [&](std::size_t i) { return ++call % 7 == 0 ? 5.0
                                     : i == 0        ? 1.0
                                                     : 0.8; }, [] { return 0.0; },
      {.hopeless = 100});
  EXPECT_EQ(selection.chosen, 1u);
}

}  // namespace
}  // namespace jit
