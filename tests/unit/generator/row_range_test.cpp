// Ranges of keys that are derived from the texts of masks, against what C++ makes of the texts at every key.
#include "generator/functors/row_range.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/functors/functor_node.h"
#include "tests/support/exact_number.h"
#include "tests/support/random_mask_text.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using testing::TextPlace;

FunctorText rows_text(std::string body) {
  return {.name = "m",
          .body = std::move(body),
          .constants = {{"width", std::int64_t{128}}, {"wide", std::int64_t{1} << 40}},
          .tensors = {{"ids", DType::int32}, {"bias", DType::bf16}}};
}

using testing::Number;

struct Keys {
  std::int64_t begin, end;
  bool has(std::int64_t k) const { return k >= begin && k < end; }
};

Keys keys_of(const TextRowRange& rows, const TextPlace& place) {
  for (const std::optional<TextMeaning>* end : {&rows.begin, &rows.end})
    EXPECT_FALSE(*end && reads(**end, TextInput::k));
  return {rows.begin ? Number(*rows.begin, place).result() : 0,
          rows.end ? Number(*rows.end, place).result() : place[6]};
}

TEST(RowRange, RandomTextsAreNeverMisjudged) {
  const std::uint64_t seed = reference::test_seed();
  std::mt19937_64 random(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  constexpr int texts = 10000;
  int known = 0, cut = 0;
  for (int i = 0; i < texts; ++i) {
    const testing::RandomMaskText text =
        i % 5 == 0 ? testing::random_mask_text(random) : testing::random_range_text(random);
    const auto rows = text_row_range(rows_text(text.body));
    if (rows == nullptr) continue;
    ++known;
    const int seqlen_q = 1 + below(80), seqlen_kv = 1 + below(80);
    TextPlace place = {below(seqlen_q), 0, below(4), below(8), 8, seqlen_q, seqlen_kv};
    const Keys keys = keys_of(*rows, place);
    int seen = 0;
    for (place[1] = 0; place[1] < seqlen_kv; ++place[1]) {
      const std::optional<bool> keeps = text.keep(place);
      if (!keeps) continue;
      ASSERT_EQ(*keeps, keys.has(place[1]))
          << "seed " << seed << ", q " << place[0] << ", k " << place[1] << "\n"
          << text.body;
      seen += *keeps;
    }
    cut += seen > 0 && seen < seqlen_kv;
  }
  EXPECT_GT(known, texts / 4) << "else nothing was tested";
  EXPECT_GT(cut, texts / 25);
}

// The keys of [0, 300) that a query sees, as "begin..end"; "" where they are not known.
std::string seen(const std::string& body, int q, int seqlen_q = 100) {
  const auto rows = text_row_range(rows_text(body));
  if (!rows) return "";
  const Keys keys = keys_of(*rows, {q, 0, 2, 5, 8, seqlen_q, 300});
  const std::int64_t begin = std::clamp<std::int64_t>(keys.begin, 0, 300),
                     end = std::clamp<std::int64_t>(keys.end, 0, 300);
  return begin >= end ? "none" : std::to_string(begin) + ".." + std::to_string(end);
}

TEST(RowRange, OfUsualMasks) {
  EXPECT_EQ(seen("return k <= q + seqlen_kv - seqlen_q;", 10), "0..211");
  EXPECT_EQ(seen("return k < 64;", 10), "0..64");
  EXPECT_EQ(seen("return true;", 10), "0..300");
  EXPECT_EQ(seen("return k <= q + seqlen_kv - seqlen_q && q + seqlen_kv - seqlen_q - k <= 100;", 10),
            "110..211");
  EXPECT_EQ(seen("const int p = q + 200;\nif (k > p) return false;\nreturn p - k < width;", 10), "83..211");
  EXPECT_EQ(seen("return abs(q + 200 - k) <= 10;", 10), "200..221");
  EXPECT_EQ(seen("return k / 64 == q / 64;", 70), "64..128") << "chunks";
  EXPECT_EQ(seen("return k >> 6 <= q >> 6;", 70), "0..128");
  EXPECT_EQ(seen("return q - k < wide && k <= q;", 70), "0..71");
  EXPECT_EQ(seen("return k >= q / 10 * 10 && k < q + 7;", 78), "70..85");
  EXPECT_EQ(seen("return k >= ids[q] && k < q + ids[b];", 3), "0..5") << "ids[3] is 0, ids[2] is 2";
  EXPECT_EQ(seen("return h < 3 ? k <= q : k < 7;", 70), "0..7");
  EXPECT_EQ(seen("return h > 3 || k <= q;", 70), "0..300");
  EXPECT_EQ(seen("return !(k > q || k < q - 5);", 70), "65..71");
  EXPECT_EQ(seen("return !(k != q);", 70), "70..71");
  EXPECT_EQ(seen("return !(h > 3 && abs(q - k) > 5);", 70), "65..76");
  EXPECT_EQ(seen("return !(h < 3 && abs(q - k) > 5);", 70), "0..300");
  EXPECT_EQ(seen("return k < q || k < 5;", 2), "0..5") << "both begin with the first key";
  EXPECT_EQ(seen("return q > 5;", 2), "none");
}

TEST(RowRange, IsNotGuessed) {
  const std::vector<std::string> texts = {
      "return k <= q || k > 64;",                                            // two ranges
      "return (k <= q && k > 5) || k < 64;",                                 // one range, or two
      "return k != q;",                                                      // all but one
      "return abs(q - k) >= 5;",                                             //
      "return (q - k) % 4 == 0;",                                            // many
      "return (k & 1) == 0;",                                                //
      "return ids[q] == ids[k];",                                            // whatever the tensor holds
      "return k * 2 - k < 5;",                                               // the key is used twice
      "return static_cast<float>(k) < 0.5f * q;",                            // real numbers round
      "return k <= q && bias[q] > 0.0f;",                                    //
      "return static_cast<unsigned>(q - k) < 5u;",                           // natural numbers wrap
      "return k << 20 < q;",                                                 // bits may be lost
      "return static_cast<int>(k + 5000000000ll) < q;",                      //
      "return k + 1ll < q;",                                                 //
      "return k >> b < 5;",                                                  // known to the kernel alone
      "return k / q < 5;",                                                   // the divisor may have any sign
      "for (int i = 0; i < k; ++i) if (i > q) return false;\nreturn true;",  // not followed
  };
  for (const std::string& body : texts) EXPECT_EQ(text_row_range(rows_text(body)), nullptr) << body;
  // Neither a long time nor much memory.
  std::string magnitudes = "int x = k;\n", sums = "int x = k;\n";
  for (int i = 0; i < 30; ++i) magnitudes += "x = abs(x - q);\n";
  for (int i = 0; i < 2000; ++i) sums += "x += q;\n";
  EXPECT_EQ(text_row_range(rows_text(magnitudes + "return x < 5;")), nullptr);
  EXPECT_EQ(text_row_range(rows_text(sums + "return x < 5;")), nullptr);
  FunctorText classified = rows_text("return k <= q;");
  classified.classify = "return TileClass::partial;";
  EXPECT_EQ(text_row_range(classified), nullptr) << "what the text says of tiles is taken at its word";
}

// Elements that no key has read may not be there.
TEST(RowRange, ReadsWhatTheTextReads) {
  EXPECT_EQ(seen("return k < ids[q] + 7;", 5), "0..9");
  EXPECT_EQ(seen("return q > 90 && k < ids[q + 5000];", 5), "none");
  EXPECT_EQ(seen("return k >= -5 && k < -q && ids[q + 5000] == 1;", 3), "none");
  EXPECT_EQ(seen("return k >= 400 && k < 500 && ids[q + 5000] == 1;", 5), "none");
  EXPECT_EQ(seen("return k > q && k < ids[q] + 10;", 5), "6..12") << "some keys have it read";
  EXPECT_EQ(seen("return k % 2 == 0 && k < ids[q];", 5), "") << "which ones is not known";
}

// Numbers that no score has, but that C++ defines.
TEST(RowRange, AtTheEndsOfTypes) {
  EXPECT_EQ(seen("return k - 2147483647 < q - 2147483600;", 5), "0..52");
  EXPECT_EQ(seen("return -2147483647 - k / 300 <= q - 2147483640;", 0), "0..300");
  EXPECT_EQ(seen("return k / 2147483647 - (q + 2147483000) - (q + 2147483000) < q + 2147483000;", 5),
            "0..300");
  EXPECT_EQ(seen("return k / 2147483647 >= -2147483647 && k >= 5;", 0), "5..300");
  EXPECT_EQ(seen("return (k - 2147483647) / 2 > -1073741800;", 0), "48..300");
  EXPECT_EQ(seen("return (k >> 31) == 0 && k * -7 >= -70;", 0), "0..11");
  EXPECT_EQ(seen("return k / -3 > -4;", 0), "0..12");
  EXPECT_EQ(seen("return (k - 8) / 3 >= 0;", 0), "6..300") << "−2 / 3 is 0";
  EXPECT_EQ(seen("return (k - 8) / 3 >= -1 && (8 - k) / 3 >= 0;", 0), "3..11");
  EXPECT_EQ(seen("return static_cast<long long>(k) - 0 < 5;", 0), "")
      << "arithmetic in 64 bits is not looked into";
  EXPECT_EQ(seen("return static_cast<long long>(-2147483647 - 1 + k) <= -2147483649ll;", 0), "none");
  EXPECT_EQ(seen("return static_cast<long long>(2147483347 + k) >= 2147483648ll;", 0), "none");
}

TEST(RowRange, IsPartOfTheMask) {
  const Mask window = mask::text(rows_text("return abs(q - k) < 9;")),
             gap = mask::text(rows_text("return abs(q - k) > 9;"));
  EXPECT_TRUE(has_row_range(window));
  EXPECT_FALSE(has_row_range(gap));
  EXPECT_TRUE(has_row_range(window && mask::causal()));
  EXPECT_FALSE(has_row_range(window || mask::causal()));
  EXPECT_FALSE(has_row_range(!window));
  const Mask before = mask::text(rows_text("return k < q - 9;"));
  EXPECT_TRUE(has_row_range(before || mask::causal())) << "both begin with the first key";
  EXPECT_FALSE(has_row_range(before || window));
  EXPECT_EQ(key_words(window || mask::document()), 1) << "ranges are terms";
  EXPECT_EQ(key_words(gap), 2);
}

}  // namespace
}  // namespace jit
