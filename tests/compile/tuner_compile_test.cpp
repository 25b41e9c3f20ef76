// The tuner on an emulated device, whose clock is the host's: which config is chosen means nothing, how it is does.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device.h>
#include <jit/tuning.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/candidates.h"
#include "generator/tuning/tuner.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TunerTest : public ::testing::Test {
 protected:
  void SetUp() override { use_device("emulated:sm_80"); }

  TuningResult tune_within(double seconds) {
    Settings settings = testing::private_settings();
    settings.tuning_seconds = seconds;
    const Context context(settings, events_.observer());
    return tune(*Access::state(context), problem(), /*exhaustive=*/false);
  }
  ForwardProblem problem() const {
    AttentionParams params;
    fill_params(spec_, {}, sized_arguments(spec_, {.heads_q = 2, .seqlen_q = 32, .seqlen_kv = 32}), params);
    return forward_problem(spec_, device_info(0), params);
  }
  std::vector<Candidate> candidates() const { return problem().candidates(/*exhaustive=*/false); }

  const AttentionSpec spec_{.head_dim = 16};
  testing::Events events_;
};

TEST_F(TunerTest, CompilesChecksAndMeasuresItsCandidates) {
  const std::vector<Candidate> wanted = candidates();
  ASSERT_GT(wanted.size(), 1u);
  const TuningResult result = tune_within(1e6);
  EXPECT_FALSE(result.out_of_time);
  EXPECT_GT(result.median_us, 0);
  EXPECT_GT(result.default_us, 0);
  EXPECT_GE(result.candidates, 1);
  EXPECT_LE(static_cast<std::size_t>(result.candidates), wanted.size());
  EXPECT_EQ(result.log.size(), wanted.size());
  EXPECT_EQ(std::count_if(result.log.begin(), result.log.end(),
                          [](const std::string& line) { return line.find(", chosen") != std::string::npos; }),
            1);
  EXPECT_THAT(result.log[0], HasSubstr(to_string(wanted[0].configs)));
  EXPECT_THAT(result.log, Each(::testing::AnyOf(HasSubstr(" us ("), HasSubstr("too far behind to win"))));
  EXPECT_LE(events_.messages(Event::Kind::compile).size(), wanted.size() + 2) << "and what checks them";
  EXPECT_THAT(events_.messages(Event::Kind::tuned),
              ElementsAre(to_string(result.configs) + " for " + to_string(spec_)));
  EXPECT_THAT(events_.messages(Event::Kind::tune), ::testing::IsSupersetOf(result.log));
}

// Varlen and paged sequences, lengths on the device, sinks: measured on sequences of one length, and checked. One of
// the five in every second run.
TEST_F(TunerTest, MeasuresSequencesWhoseLengthsAreOnTheDevice) {
  if (!reference::is_turn(0, 2))
    GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  std::vector<AttentionSpec> specs(5, AttentionSpec{.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()});
  specs[0].sequences_q = SequenceKind::varlen;
  specs[0].sequences_kv = SequenceKind::paged;
  specs[0].page_size = 16;
  specs[1].sequences_q = specs[1].sequences_kv = SequenceKind::varlen;
  specs[2].sequences_kv = SequenceKind::paged;
  specs[2].page_size = 8;
  specs[2].sinks = true;
  specs[3].sequences_kv = SequenceKind::varlen;
  specs[4] = specs[0];
  specs[4].split_keys = 64;  // which `bench` times, and nobody tunes
  for (const AttentionSpec& spec : reference::some_of(specs, 5)) {
    SCOPED_TRACE(to_string(spec));
    const ProblemShape shape{.batch = 2, .heads_q = 4, .seqlen_q = 3, .seqlen_kv = 70};
    AttentionParams params;
    ASSERT_TRUE(fill_params(spec, {}, placeholder_arguments(spec, extents_of(spec, shape)), params));
    const Context context(testing::private_settings(), events_.observer());
    const TuningResult result =
        tune(*Access::state(context), forward_problem(spec, device_info(0), params), /*exhaustive=*/false);
    EXPECT_THAT(to_string(result.configs), HasSubstr("forward_split_"));
    EXPECT_GE(result.candidates, 1);
    EXPECT_THAT(result.log, Each(::testing::Not(HasSubstr("wrong"))));
    EXPECT_THAT(result.log, Each(::testing::AnyOf(HasSubstr(" us ("), HasSubstr("too far behind to win"),
                                                  HasSubstr("no time left"))));
  }
}

TEST_F(TunerTest, WhatCannotBeMeasuredIsRefused) {
  EXPECT_TRUE(can_time(spec_));
  AttentionSpec tree{.head_dim = 64, .mask = mask::draft_tree()};
  EXPECT_TRUE(can_time(tree));
  tree.sequences_q = SequenceKind::varlen;
  EXPECT_FALSE(can_time(tree));
}

// Whatever the time, the cost model's choice is compiled, checked and measured.
TEST_F(TunerTest, WithoutTimeTheDefaultIsLeft) {
  const TuningResult result = tune_within(1e-9);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_EQ(result.candidates, 1);
  EXPECT_EQ(result.configs, candidates()[0].configs);
  EXPECT_THAT(result.log[0], HasSubstr(", chosen"));
  EXPECT_THAT(std::vector<std::string>(result.log.begin() + 1, result.log.end()),
              Each(HasSubstr("no time left for it")));
  EXPECT_EQ(events_.messages(Event::Kind::compile).size(), 3u);
}

}  // namespace
}  // namespace jit
