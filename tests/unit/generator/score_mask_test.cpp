// Which tiles scores leave nothing of, as their texts say, against what C++ makes of the texts.
#include "generator/functors/score_mask.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <jit/score.h>

#include "generator/functors/interval_meaning.h"
#include "tests/support/random_score_text.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using testing::random_score_text;
using testing::RandomScoreText;
using testing::ScorePlace;

constexpr float infinity = std::numeric_limits<float>::infinity();

Score text(const std::string& body) {
  return score::text({.name = "s",
                      .body = body,
                      .constants = {{"drop", -1e300}, {"width", std::int64_t{40}}},
                      .tensors = {{"ids", DType::int32}, {"bias", DType::fp32}}});
}

// The answer for one score: 1 it may be kept, 0 it is dropped, -1 nothing is known of the whole text.
int kept_at(const Score& score, int q, int k) {
  const ScoreMask* const mask = score_mask(score);
  return mask == nullptr ? -1 : kept(mask->kept, {q, k, 2, 5, 8, 100, 300}).high;
}
int kept_at(const std::string& body, int q, int k) { return kept_at(text(body), q, k); }

TEST(ScoreMask, ReadsWhatPeopleWrite) {
  for (const char* body :
       {"return q >= k ? score : -INFINITY;", "if (q < k) return -INFINITY;\nreturn score;",
        "auto s = score * 2;\nif (q < k) s = -INFINITY;\nreturn s;", "return q >= k ? expf(score) : drop;",
        "return score + (q >= k ? 0.0f : -INFINITY);", "return score - (q >= k ? 0 : INFINITY);",
        "auto s = score;\ns += q >= k ? 0.0f : -INFINITY;\ns += q - k < width ? 0.0f : -INFINITY;\nreturn s;",
        "return fminf(score, q >= k ? INFINITY : -INFINITY);", "return -(q >= k ? score : INFINITY);",
        "const float mask = q >= k ? 0.0f : -INFINITY;\nreturn 0.5f * score + mask * 2;",
        "return q < k ? -INFINITY : score + bias[k] * tanhf(score);"}) {
    EXPECT_EQ(kept_at(body, 9, 9), 1) << body;
    EXPECT_EQ(kept_at(body, 9, 10), 0) << body;
  }
}

TEST(ScoreMask, NothingElseIsDropped) {
  for (const char* body :
       {"return score;", "return score * 2 - 1;", "return q >= k ? score : -1e30f;",
        "return q >= k ? score : INFINITY;", "return bias[q] + score;",
        "return fmaxf(score, q < k ? -INFINITY : 0.0f);", "return score * (q < k ? -INFINITY : 1.0f);",
        "return INFINITY - INFINITY;", "for (;;) return -INFINITY;"})
    EXPECT_EQ(kept_at(body, 9, 10), -1) << body;
  // A sum with an infinity may be NaN, or another infinity.
  EXPECT_EQ(kept_at("return bias[k] + (q < k ? -INFINITY : 0);", 9, 10), -1);
  EXPECT_NE(kept_at("return score * 2 + (q < k ? -INFINITY : 0);", 9, 10), 0);
  EXPECT_NE(kept_at("return fminf(bias[k], q < k ? -INFINITY : 1);", 9, 10), 0);
  EXPECT_NE(kept_at("return 1e-44f * (q < k ? -INFINITY : 1);", 9, 10), 0);
  EXPECT_EQ(kept_at("return score > 3 ? -INFINITY : score;", 9, 10), 1);
}

TEST(ScoreMask, GoesThroughChains) {
  const Score causal = text("return q >= k ? score : -INFINITY;");
  const Score window = text("return q - k < 5 ? score : -INFINITY;");
  for (const auto& [q, k] : {std::pair{3, 9}, {9, 3}, {9, 9}})
    EXPECT_EQ(kept_at(causal.then(window), q, k), k <= q && q - k < 5);
  EXPECT_EQ(kept_at(score::softcap(3).then(causal), 3, 9), 0);
  EXPECT_EQ(kept_at(score::alibi().then(causal), 3, 9), 0);
  EXPECT_EQ(kept_at(causal.then(score::softcap(3)), 3, 9), -1) << "-cap";
  EXPECT_EQ(kept_at(causal.then(score::softcap(3)).then(window), 9, 3), 0);
  EXPECT_EQ(kept_at(causal.then(score::softcap(3)).then(window), 3, 9), 1);
  EXPECT_EQ(kept_at(causal.then(score::bias()), 3, 9), -1) << "a bias may be infinite";
  EXPECT_EQ(kept_at(causal.then(text("return score + 1;")), 3, 9), 0);
  EXPECT_EQ(kept_at(causal.then(text("return score * score;")), 3, 9), -1);
  EXPECT_EQ(kept_at(causal.then(text("return tanhf(score);")), 3, 9), -1);
}

TEST(ScoreMask, ChainsReadTheTensorsOfAllTexts) {
  const Score first = score::text({.name = "a",
                                   .body = "return k < ends[b] ? score : -INFINITY;",
                                   .tensors = {{"slopes", DType::fp32}, {"ends", DType::int32}}});
  const Score second = score::text({.name = "b",
                                    .body = "return k < begins[b] ? -INFINITY : score;",
                                    .tensors = {{"begins", DType::int32}}});
  const Score chain = first.then(second);
  const ScoreMask* const mask = score_mask(chain);
  ASSERT_NE(mask, nullptr);
  const TextElement element = [&](int tensor, std::int64_t i) {
    const std::string& name = mask->tensors.at(static_cast<std::size_t>(tensor)).name;
    return i == 2 ? name == "ends" ? 50.0 : name == "begins" ? 20.0 : std::nan("") : std::nan("");
  };
  for (const int k : {0, 19, 20, 49, 50})
    EXPECT_EQ(kept(mask->kept, {0, k, 2, 5, 8, 100, 300}, element).high, k >= 20 && k < 50) << k;
}

TEST(ScoreMask, RandomTextsAreNeverMisjudged) {
  const std::uint64_t seed = reference::test_seed();
  std::mt19937_64 random(seed);
  constexpr float largest = std::numeric_limits<float>::max();
  constexpr float scores[] = {0, 3.5f, -40, 1e-42f, largest, -largest};
  int dropping = 0, empty = 0, found = 0;
  for (int i = 0; i < 10000; ++i) {
    const RandomScoreText first = random_score_text(random), second = random_score_text(random);
    const bool is_chain = random() % 3 == 0;
    const Score written = is_chain ? text(first.body).then(text(second.body)) : text(first.body);
    const ScoreMask* const mask = score_mask(written);
    const int q = static_cast<int>(random() % 60), k = static_cast<int>(random() % 60),
              size = static_cast<int>(random() % 6);
    const bool is_empty =
        mask != nullptr &&
        !kept(mask->kept, {Interval<int>(q, q + size), Interval<int>(k, k + size), 0, 0, 1, 66, 66}).high;
    dropping += mask != nullptr, empty += is_empty;
    bool drops_all = true;
    for (int j = 0; j < 2 * 6 * (size + 1) * (size + 1); ++j) {
      const int place = j / 12;
      ScorePlace at{q + place % (size + 1), k + place / (size + 1), scores[j / 2 % 6], j % 2 == 1};
      float value = first.value(at);
      if (is_chain) at.score = value, value = second.value(at);
      drops_all &= value == -infinity;
      ASSERT_TRUE(!is_empty || value == -infinity) << "seed " << seed << ", q " << at.q << ", k " << at.k
                                                   << ", score " << scores[j / 2 % 6] << ": " << value << "\n"
                                                   << first.body << (is_chain ? "\n---\n" + second.body : "");
    }
    found += drops_all;
  }
  EXPECT_GT(dropping, 2500);
  EXPECT_GT(empty, 180) << "else nothing was tested";
  EXPECT_GT(empty, found / 4) << "of tiles that are dropped";
}

}  // namespace
}  // namespace jit
