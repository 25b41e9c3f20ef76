// Dropout on the host: random numbers, what calls and specs refuse, and what a kernel is given.
#include "generator/problem/dropout_arguments.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/attention.h>

#include "generator/problem/arguments.h"
#include "templates/base/philox.cuh"
#include "tests/support/error_of.h"
#include "tests/support/host_dropout.h"

namespace jit {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// The published values: kat_vectors of Random123, philox4x32.
TEST(Philox, KnownAnswers) {
  constexpr unsigned ones = 0xffffffff;
  EXPECT_THAT(philox<7>({{0, 0, 0, 0}}, 0, 0).words,
              ElementsAre(0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48));
  EXPECT_THAT(philox<7>({{ones, ones, ones, ones}}, ones, ones).words,
              ElementsAre(0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662));
  EXPECT_THAT(philox<7>({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0).words,
              ElementsAre(0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a));
  EXPECT_THAT(philox<10>({{0, 0, 0, 0}}, 0, 0).words,
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
}

// A byte is one of 256, of which those up to the threshold keep a score.
TEST(Dropout, TheKeptShareIsTheRatesWithinARoundingAndAnError) {
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    const reference::Dropout dropout{.rate = rate, .seed = 42, .offset = 1u << 31};
    constexpr int heads = 3, queries = 150, keys = 150;
    int kept = 0;
    for (int h = 0; h < heads; ++h) {
      for (int q = 0; q < queries; ++q) {
        for (int k = 0; k < keys; ++k) kept += dropout.keeps(heads, 1, h, q, k);
      }
    }
    const double count = heads * queries * keys, share = (std::floor((1 - rate) * 255) + 1) / 256;
    EXPECT_NEAR(kept / count, share, 5 * std::sqrt(share * (1 - share) / count)) << rate;
    EXPECT_NEAR(share, 1 - rate, 1 / 256.0);
  }
}

TEST(DropoutParams, FollowFromTheRate) {
  DropoutParams all = {}, most = {};
  set_dropout_rate(all, 0);
  EXPECT_EQ(all.thresholds, 0xffffffff);
  EXPECT_EQ(all.scale, 1);
  set_dropout_rate(most, 0.1f);
  EXPECT_EQ(most.thresholds, 229 * 0x01010101u);  // flash-attention's: floor(0.9 · 255)
  EXPECT_FLOAT_EQ(most.scale, 1 / 0.9f);
  EXPECT_FLOAT_EQ(most.keep_probability, 0.9f);
}

AttentionSpec with_dropout() { return {.head_dim = 16, .dropout = true}; }

AttentionArguments arguments_with_dropout() {
  return placeholder_arguments(with_dropout(),
                               {.seqlen_q = 8, .seqlen_kv = 8, .head_dim = 16, .head_dim_v = 16});
}

TEST(DropoutArguments, RatesOutsideOf0To1AreRefused) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float rate : {0.0f, 0.3f, std::nextafter(1.0f, 0.0f)}) {
    AttentionArguments arguments = arguments_with_dropout();
    arguments.dropout_p = rate;
    EXPECT_NO_THROW(check_arguments(with_dropout(), arguments)) << rate;
  }
  for (const float rate : {-0.1f, 1.0f, 1.5f, HUGE_VALF, -HUGE_VALF, nan}) {
    AttentionArguments arguments = arguments_with_dropout();
    arguments.dropout_p = rate;
    const Error error = error_of([&] { check_arguments(with_dropout(), arguments); });
    EXPECT_EQ(error.field(), "dropout_p") << rate;
    EXPECT_THAT(error.message(), HasSubstr("at least 0 and less than 1"));
  }
}

TEST(DropoutArguments, RateAndSeedBelongToASpecWithDropout) {
  const AttentionSpec plain{.head_dim = 16};
  AttentionArguments arguments = arguments_with_dropout();
  EXPECT_EQ(error_of([&] { check_arguments(plain, arguments); }).field(), "rng_state");
  arguments.rng_state = {};
  EXPECT_NO_THROW(check_arguments(plain, arguments));
  arguments.dropout_p = 0.1f;
  EXPECT_EQ(error_of([&] { check_arguments(plain, arguments); }).field(), "dropout_p");
  EXPECT_EQ(error_of([&] { check_arguments(with_dropout(), arguments); }).field(), "rng_state");
}

TEST(DropoutArguments, TheSeedHasTwoWords) {
  AttentionArguments arguments = arguments_with_dropout();
  arguments.rng_state.shape[0] = 3;
  EXPECT_THAT(error_of([&] { check_arguments(with_dropout(), arguments); }).message(),
              HasSubstr("rng_state"));
  arguments = arguments_with_dropout();
  arguments.rng_state.dtype = DType::int32;
  EXPECT_THAT(error_of([&] { check_arguments(with_dropout(), arguments); }).message(), HasSubstr("int64"));
}

TEST(DropoutArguments, LengthsMayBeOnTheDevice) {
  AttentionArguments arguments = arguments_with_dropout();
  arguments.seqused_k = {
      .data = reinterpret_cast<void*>(64), .dtype = DType::int32, .rank = 1, .shape = {1}, .strides = {1}};
  EXPECT_NO_THROW(check_arguments(with_dropout(), arguments));
}

TEST(DropoutSpec, IsOfSequencesOfAnyLengthsAndHasSinks) {
  for (AttentionSpec spec :
       {AttentionSpec{.sequences_q = SequenceKind::varlen, .sequences_kv = SequenceKind::varlen},
        AttentionSpec{.sequences_kv = SequenceKind::varlen}, AttentionSpec{.sinks = true}}) {
    spec.dropout = true;
    EXPECT_NO_THROW(validate(spec));
  }
}

TEST(DropoutSpec, IsRefusedWithPagesAndSpans) {
  for (AttentionSpec spec : {AttentionSpec{.sequences_kv = SequenceKind::paged, .page_size = 16},
                             AttentionSpec{.split_keys = 512}}) {
    spec.dropout = true;
    const Error error = error_of([&] { validate(spec); });
    EXPECT_EQ(error.field(), "spec.dropout");
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
  }
}

}  // namespace
}  // namespace jit
