// Meanings of texts of masks, compared with what C++ computes.
#include "generator/functors/text_meaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/functors/interval_meaning.h"
#include "tests/support/random_mask_text.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::HasSubstr;
using testing::TextPlace;

FunctorText text_of(std::string body) {
  return {.name = "m",
          .body = std::move(body),
          .constants = {{"width", std::int64_t{128}},
                        {"wide", std::int64_t{1} << 40},
                        {"half", 0.5},
                        {"on", true}},
          .tensors = {{"ids", DType::int32}, {"bias", DType::bf16}}};
}

TextMeaning followed(const std::string& body) {
  const auto meaning = mask_meaning(text_of(body));
  if (const auto* reason = std::get_if<NotFollowed>(&meaning))
    throw std::runtime_error(body + "\n" + std::to_string(reason->line) + ": " + reason->reason);
  return std::get<TextMeaning>(meaning);
}

// The answer for one score: 1, 0, or -1 where it is not known.
int kept_at(const std::string& body, int q, int k) {
  const Interval<bool> kept = jit::kept(followed(body), {q, k, 2, 5, 8, 100, 300});
  return kept.is_exact() ? kept.low : -1;
}

TEST(MaskMeaning, RandomTextsAreNeverMisjudged) {
  const std::uint64_t seed = reference::test_seed();
  std::mt19937_64 random(seed);
  const TextElement ids = [](int, std::int64_t i) -> double { return testing::random_text_id(i); };
  int certain = 0, single = 0, partial = 0;
  for (int i = 0; i < 10000; ++i) {
    const testing::RandomMaskText text = testing::random_mask_text(random);
    const TextMeaning meaning = followed(text.body);
    const auto below = [&](int bound) {
      return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
    };
    const int seqlen_q = 1 + below(300), seqlen_kv = 1 + below(300);
    const int q_begin = below(seqlen_q), k_begin = below(seqlen_kv);
    const int q_end = std::min(seqlen_q, q_begin + 1 + below(12)),
              k_end = std::min(seqlen_kv, k_begin + 1 + below(12));
    TextPlace place = {0, 0, below(4), below(8), 8, seqlen_q, seqlen_kv};
    TextInputs inputs = {Interval<int>(q_begin, q_end - 1),
                         Interval<int>(k_begin, k_end - 1),
                         place[2],
                         place[3],
                         place[4],
                         place[5],
                         place[6]};
    const Interval<bool> tile = kept(meaning, inputs, ids);
    certain += tile.is_exact();
    bool some_kept = false, some_dropped = false;
    for (int q = q_begin; q < q_end; ++q) {
      for (int k = k_begin; k < k_end; ++k) {
        place[0] = q, place[1] = k;
        const std::optional<bool> keeps = text.keep(place);
        if (!keeps) continue;
        ASSERT_TRUE(tile.holds(*keeps)) << "seed " << seed << ", q " << q << ", k " << k << "\n" << text.body;
        (*keeps ? some_kept : some_dropped) = true;
        if (q > q_begin || k > k_begin) continue;
        inputs[0] = q, inputs[1] = k;
        const Interval<bool> score = kept(meaning, inputs, ids);
        ASSERT_TRUE(score.holds(*keeps)) << "seed " << seed << ", q " << q << ", k " << k << "\n"
                                         << text.body;
        single += score.is_exact();
      }
    }
    partial += some_kept && some_dropped;
  }
  EXPECT_GT(certain, 3000) << "of 10000 tiles, else nothing was tested";
  EXPECT_GT(partial, 300);
  EXPECT_GT(single, 6000) << "of single scores nearly all are known";
}

TEST(MaskMeaning, IsThatOfCpp) {
  EXPECT_EQ(kept_at("return k <= q + seqlen_kv - seqlen_q;", 10, 210), 1);
  EXPECT_EQ(kept_at("return k <= q + seqlen_kv - seqlen_q;", 10, 211), 0);
  EXPECT_EQ(kept_at("return 2 + 3 * 4 == 14 && 20 / 3 % 4 == 2 && 1 << 2 + 1 == 8;", 0, 0), 1);
  EXPECT_EQ(kept_at("return (7 & 3 | 8 ^ 12) == 7;", 0, 0), (7 & 3) | (8 ^ 12) ? 1 : 0);
  EXPECT_EQ(kept_at("return q - k - 3 == 4;", 10, 3), 1) << "from the left";
  EXPECT_EQ(kept_at("return q > k ? k > 5 ? false : true : false;", 10, 3), 1) << "from the right";
  EXPECT_EQ(kept_at("return -7 / 2 == -3 and -7 % 2 == -1 and not (~0 != -1);", 0, 0), 1);
  EXPECT_EQ(kept_at("return q - 5u > 7;", 4, 0), -1) << "natural numbers wrap: any";
  EXPECT_EQ(
      kept_at("return 0xffffffff > 0 && 4294967295 > q && 0b101 == 5 && 010 == 8 && 1'000 == 1000;", 1, 0),
      1);
  EXPECT_EQ(kept_at("return 1e3f == 1000.0 && 0x1p-1 == half && .5f < 1 && 2.f > 1;", 0, 0), 1);
  EXPECT_EQ(kept_at("return wide > q && on;", 1, 0), 1);
  EXPECT_EQ(kept_at("return (q >= k) + (q >= 3) == 2;", 5, 4), 1) << "truths are numbers";
  EXPECT_EQ(kept_at("return q & 4;", 5, 4), 1) << "numbers are truths";
  EXPECT_EQ(kept_at("return static_cast<int>(-2.75f) == -2 && (int)2.75 == 2 && float(7) / 2 > 3.4f;", 0, 0),
            1);
  EXPECT_EQ(kept_at("/* a\ncomment */ return q // another\n == 5;", 5, 0), 1);
}

TEST(MaskMeaning, FollowsStatements) {
  const std::string nested =
      "int x = q, y(k); const auto d{x - y};\n"
      "if (d < 0) { int x = -d; y = x; } else if (d > 10) return false;\n"
      "x += y; y <<= 1; --x; x++;\n"
      "{ int x = 1000; ++x; }\n"
      "return x == 30 && y == 20;";
  EXPECT_EQ(kept_at(nested, 20, 10), 1);
  EXPECT_EQ(kept_at(nested, 30, 10), 0);
  EXPECT_EQ(kept_at("q = 2 * q; k -= 3; return q == k;", 4, 11), 1) << "parameters are variables";
  EXPECT_EQ(kept_at("if (q > 3) return true; else return false;", 4, 0), 1);
  EXPECT_EQ(kept_at("if constexpr (width == 128) { if (q == 1) return false; } return true;", 1, 0), 0);
  EXPECT_EQ(kept_at("bool seen = q + 5; return seen == 1;", 1, 0), 1) << "types of variables convert";
  EXPECT_EQ(kept_at("float x = q; x /= 2; return x == 2.5f;", 5, 0), -1)
      << "real numbers are known to a rounding";
  EXPECT_EQ(kept_at("float x = q; x /= 2; return x > 2.4f;", 5, 0), 1);
}

TEST(MaskMeaning, TensorsAreKnownWhereOneElementIsRead) {
  const auto known = [](const std::string& body, Interval<int> k) {
    const TextElement element = [](int tensor, std::int64_t i) {
      return tensor == 0 && i == 2 ? 40.0 : std::nan("");
    };
    const Interval<bool> kept =
        jit::kept(followed(body), {Interval<int>(0, 9), k, 2, 5, 8, 100, 300}, element);
    return kept.is_exact() ? static_cast<int>(kept.low) : -1;
  };
  EXPECT_EQ(known("return k < ids[b];", {0, 39}), 1);
  EXPECT_EQ(known("return k < ids[b];", {40, 50}), 0);
  EXPECT_EQ(known("return k < ids[b];", {39, 40}), -1);
  EXPECT_EQ(known("return k < ids[k];", {2, 2}), 1);
  EXPECT_EQ(known("return k < ids[k];", {2, 3}), -1);
  // A text that does not come to an element must not have it read.
  EXPECT_EQ(known("return b > 3 && k < ids[b];", {0, 39}), 0);
  EXPECT_EQ(known("return b < 3 && k < ids[b];", {0, 39}), 1);
  EXPECT_EQ(known("return k > 20 && ids[b] == 40;", {0, 39}), -1) << "some come to it";
  EXPECT_EQ(known("return k > 20 || ids[b] == 41;", {0, 39}), -1);
  EXPECT_EQ(known("if (k > 20) return true; return ids[b] == 41;", {0, 20}), 0);
  EXPECT_EQ(known("return to_float(bias[b]) > 0;", {0, 39}), -1);
}

TEST(MaskMeaning, WhatIsNotFollowedSaysWhyAndWhere) {
  const auto reason = [](const std::string& body) -> std::string {
    const auto meaning = mask_meaning(text_of(body));
    const auto* not_followed = std::get_if<NotFollowed>(&meaning);
    return not_followed ? std::to_string(not_followed->line) + ": " + not_followed->reason : "followed";
  };
  EXPECT_EQ(reason("int n = 0;\nfor (int i = 0; i < 3; ++i) n += i;\nreturn n == k;"),
            "2: loops are not followed");
  EXPECT_EQ(reason("while (q > 3) q -= 2;\nreturn q == k;"), "1: loops are not followed");
  EXPECT_EQ(reason("return\n__popc(q) == 3;"), "2: calls of '__popc' are not followed");
  EXPECT_THAT(reason("return min(q, 2.0f) > 1;"), HasSubstr("different types"));
  EXPECT_EQ(reason("if (q > k) return true;"), "1: there may be a path without a return");
  EXPECT_EQ(reason("int x;\nx = 3; return x == q;"), "1: 'x' has no value at first");
  EXPECT_EQ(reason("short x = q; return x == k;"), "1: the type 'short' is not followed");
  EXPECT_EQ(reason("const int* p = ids; return p[k] == 0;"), "1: '*' is not followed here");
  EXPECT_EQ(reason("return *ids == k;"), "1: '*' is not followed here");
  EXPECT_EQ(reason("return unknown < k;"), "1: 'unknown' is not known");
  EXPECT_EQ(reason("return (q, k) > 3;"), "1: ',' is not followed here");
  EXPECT_EQ(reason("return q == 'a';"), "1: ''' is not followed here");
  // For the compiler the comment goes on in the next line.
  EXPECT_EQ(reason("return\nk < 5 // few \\ \r\n && false\n;"), "2: '\\' is not followed here");
  EXPECT_EQ(reason("return q"), "1: the body ends too early");
  EXPECT_EQ(reason(""), "1: there may be a path without a return");
  EXPECT_EQ(reason("return 99999999999999999999 > q;"), "1: '99999999999999999999' is not followed here");
  EXPECT_EQ(reason("return " + std::string(10000, '(') + "q" + std::string(10000, ')') + ";"),
            "1: too much is nested");
  const auto chain = [](int lines) {
    std::string body;
    for (int i = 1; i <= lines; ++i)
      body += "if (q > " + std::to_string(50 * i) + " && k < 9 && (q ^ k) % 7 == 1) return k % 2 == 0;\n";
    return body + "return k <= q;";
  };
  EXPECT_EQ(reason(chain(8)), "followed");
  EXPECT_THAT(reason(chain(30)), HasSubstr("too long"));
}

// Cut anywhere, with any sign in any place: never a crash.
TEST(MaskMeaning, BrokenTextsAreRefused) {
  std::mt19937_64 random(5);
  const std::string signs = "()[]{};,+-*/%&|^~!<>=?:.0x9'\"\\# q";
  for (int i = 0; i < 3000; ++i) {
    std::string body = testing::random_mask_text(random).body;
    for (int change = 0; change < 3; ++change) body[random() % body.size()] = signs[random() % signs.size()];
    mask_meaning(text_of(body.substr(0, 1 + random() % body.size())));
    mask_meaning(text_of(body));
  }
}

}  // namespace
}  // namespace jit
