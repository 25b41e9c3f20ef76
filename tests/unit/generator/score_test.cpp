#include <jit/score.h>

#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Score, PrintsWhatItReads) {
  for (const char* text : {"none", "softcap(30)", "softcap(0.1)", "softcap(1e+30)", "alibi", "bias",
                           "bias(bf16)", "bias(fp16)", "softcap(30), alibi", "bias, softcap(2.5), alibi"}) {
    EXPECT_EQ(parse_score(text).to_string(), text);
  }
}

TEST(Score, RandomChainsSurviveARoundTrip) {
  reference::Random random(reference::test_seed());
  const std::vector<FunctorText> texts = reference::score_texts();
  for (int i = 0; i < 2000; ++i) {
    Score score = reference::random_score(random).then(score::softcap(std::ldexp(
        static_cast<float>(reference::draw(random, 1, 1 << 24)), reference::draw(random, -60, 60))));
    const Score read = parse_score(score.to_string(), texts);
    ASSERT_EQ(read, score) << score.to_string();
    ASSERT_EQ(read.tensors(), score.tensors());
  }
}

TEST(Score, JoinsAtMost64) {
  Score score;
  for (int i = 0; i < 64; ++i) score = score.then(score::alibi());
  EXPECT_EQ(parse_score(score.to_string()), score);
  for (const Error& error :
       {error_of([&] { score.then(score::alibi()); }), error_of([&] { score.then(score); }),
        error_of([&] { parse_score(score.to_string() + ", alibi"); })}) {
    EXPECT_EQ(error.field(), "spec.score");
    EXPECT_THAT(error.message(), HasSubstr("a score joins at most 64 scores"));
  }
}

TEST(Score, ErrorsPointAtThePlace) {
  const std::vector<std::pair<const char*, int>> bad = {
      {"", 1},         {"sofcap(3)", 1},     {"softcap", 8},
      {"softcap(", 9}, {"softcap(x)", 9},    {"alibi alibi", 7},
      {"alibi,", 7},   {"text(absent)", 13}, {"bias(bf16", 10}};
  for (const auto& [text, place] : bad) {
    const Error error = error_of([text = text] { parse_score(text); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    EXPECT_THAT(error.message(), HasSubstr("character " + std::to_string(place) + ":")) << text;
  }
  EXPECT_THROW(parse_score("bias(float)"), Error);
  EXPECT_THROW(parse_score("bias(int32)"), Error);
  EXPECT_THROW(parse_score("softcap(-1)"), Error);
  std::string chain = "alibi";
  for (int i = 0; i < 10000; ++i) chain += ", alibi";
  EXPECT_THROW(parse_score(chain), Error);
}

TEST(Score, NoneIsAbsorbedAndChainsAreFlat) {
  const Score cap = score::softcap(3), alibi = score::alibi(), bias = score::bias();
  EXPECT_EQ(cap.then(score::none()), cap);
  EXPECT_EQ(score::none().then(cap), cap);
  EXPECT_EQ(cap.then(alibi).then(bias), cap.then(alibi.then(bias)));
  EXPECT_NE(cap.then(alibi), alibi.then(cap));
}

TEST(Score, EveryParameterIsInTheHash) {
  using namespace score;
  const FunctorText text{.name = "t", .body = "return score;"};
  FunctorText constant = text, other = text;
  constant.constants = {{"c", 1.5}};
  other.constants = {{"c", std::nextafter(1.5, 2.0)}};
  const std::vector<Score> scores = {none(),
                                     softcap(1),
                                     softcap(std::nextafter(1.0f, 2.0f)),
                                     alibi(),
                                     bias(),
                                     bias(DType::bf16),
                                     bias(DType::fp16),
                                     score::text(text),
                                     score::text(constant),
                                     score::text(other),
                                     alibi().then(bias()),
                                     bias().then(alibi()),
                                     alibi().then(alibi())};
  std::set<std::uint64_t> hashes;
  for (const Score& score : scores) EXPECT_TRUE(hashes.insert(score.hash()).second) << score.to_string();
}

TEST(Score, ListsItsTensors) {
  const std::vector<FunctorTensorSpec> tensors =
      score::alibi().then(score::bias(DType::fp16)).then(score::alibi()).tensors();
  EXPECT_THAT(tensors, ::testing::ElementsAre(FunctorTensorSpec{"alibi_slopes", DType::fp32},
                                              FunctorTensorSpec{"bias", DType::fp16}));
  EXPECT_EQ(error_of([] { score::bias().then(score::bias(DType::bf16)).tensors(); }).code(),
            ErrorCode::invalid_spec);
}

TEST(Score, RefusesBadNumbers) {
  for (const float cap : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), NAN}) {
    EXPECT_EQ(error_of([&] { score::softcap(cap); }).field(), "spec.score.cap");
  }
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8}) {
    EXPECT_EQ(error_of([&] { score::bias(dtype); }).field(), "spec.score.dtype");
  }
}

}  // namespace
}  // namespace jit
