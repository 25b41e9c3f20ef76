// Parts of texts of masks, compared with what C++ computes at every score.
#include "generator/functors/mask_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/exact_number.h"
#include "tests/support/random_mask_text.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using Kind = MaskPart::Kind;
using testing::Number;
using testing::TextPlace;

FunctorText parts_text(std::string body) {
  return {.name = "m",
          .body = std::move(body),
          .constants = {{"width", std::int64_t{128}}, {"block", std::int64_t{48}}},
          .tensors = {{"ids", DType::int32}, {"bias", DType::bf16}}};
}

// The structure of part `i`, such as "(range & key[range])", with the argument of a tensor where it depends
// on another part.
std::string described(const MaskParts& parts, int i) {
  const MaskPart& part = parts.parts[static_cast<std::size_t>(i)];
  constexpr std::array<const char*, 6> names = {"range", "query", "key", "distance", "block", "score"};
  switch (part.kind) {
    case Kind::both:
      return "(" + described(parts, part.a) + " & " + described(parts, part.b) + ")";
    case Kind::either:
      return "(" + described(parts, part.a) + " | " + described(parts, part.b) + ")";
    case Kind::inverse:
      return "~" + described(parts, part.a);
    default:
      break;
  }
  return names[static_cast<std::size_t>(part.kind)] +
         (part.asked < 0 ? std::string() : "[" + described(parts, part.asked) + "]");
}
std::string made_of(const std::string& body) {
  const auto parts = mask_parts(parts_text(body));
  return parts ? described(*parts, static_cast<int>(parts->parts.size()) - 1) : "";
}

TEST(MaskParts, OfUsualMasks) {
  const std::string position = "const int p = q + seqlen_kv - seqlen_q;\n";
  EXPECT_EQ(made_of(position + "return k <= p && p - k <= width && (p - k) % 4 == 0;"), "distance")
      << "dilated";
  EXPECT_EQ(made_of(position + "return abs(p - k) < 256 || k < 64 || p < 64;"),
            "((distance | range) | query)")
      << "Longformer";
  EXPECT_EQ(made_of("return abs(q - k) < 9 || ids[q / block * 8 + k / block] != 0;"),
            "(distance | block[~distance])")
      << "BigBird";
  EXPECT_EQ(made_of("return k <= q && ids[k] > 0;"), "(distance & key[distance])") << "padding";
  EXPECT_EQ(made_of("return ids[q] != 0 && ids[k] != 0;"), "(query & key[query])");
  EXPECT_EQ(made_of("return k <= q && ids[q] == ids[k];"), "(distance & score)") << "documents";
  EXPECT_EQ(made_of("return h < 4 ? k <= q : k % 3 == 0;"), "((query & distance) | (~query & key))");
  EXPECT_EQ(made_of("return k < ids[q] || k > 2 * q;"), "~range") << "all but those between";
  EXPECT_EQ(made_of("return k < ids[q] || k > 2 * q && k < 99;"), "(range | range)");
  EXPECT_EQ(made_of("return k / 64 != q / 64;"), "~range");
  EXPECT_EQ(made_of("return k / 64 % 3 == q / 64 % 3;"), "block");
  EXPECT_EQ(made_of("return (k >> 5) * (q >> 4) % 3 == 0;"), "block");
  EXPECT_EQ(made_of("return k < 2 * q + 3 || (q - k) % 7 == 1;"), "(range | distance)");
  EXPECT_EQ(made_of("return k <= q && ids[q - k] == 1;"), "distance")
      << "what is read follows from the distance";
}

TEST(MaskParts, AreOnlyWhatIsTrue) {
  EXPECT_EQ(made_of("return ids[q] == ids[k];"), "") << "the text as a whole is asked for each score";
  EXPECT_EQ(made_of("return k * q % 3 == 0;"), "");
  EXPECT_EQ(made_of("return q + k < 40 && k % 3 == 0;"), "(range & key)");
  EXPECT_EQ(made_of("return (q + k) % 3 == 0 || k < 5;"), "(score | range)") << "a sum is no distance";
  EXPECT_EQ(made_of("return (q - 2 * k) % 3 == 0 || k < 5;"), "(score | range)");
  EXPECT_EQ(made_of("return k / 24 * (q / 8) % 3 == 0 || k < 5;"), "(score | range)")
      << "24 is no multiple of 16";
  EXPECT_EQ(made_of("return k / 16 * (q / 4) % 3 == 0 || k < 5;"), "(score | range)") << "4 is none of 8";
  EXPECT_EQ(made_of("return (k + 3) / 16 * q % 3 == 0 || k < 5;"), "(score | range)");
  EXPECT_EQ(made_of("return k / b * (q / 8) % 3 == 0 || k < 5;"), "(score | range)")
      << "b is known to the kernel alone";
  EXPECT_EQ(made_of("return bias[k] > 0.0f && k <= q;"), "") << "real numbers";
  EXPECT_EQ(made_of("return static_cast<long long>(q - k + q) - q < 9 || k < 5;"), "(score | range)");
  EXPECT_EQ(made_of("for (;;) return k < 5;"), "");
}

// Questions about a distance are asked of its first query and key, where a number may leave its type that does not
// do so for later keys.
TEST(MaskParts, ADistanceIsAskedWhereItsNumbersStayInTheirTypes) {
  EXPECT_EQ(made_of("return q - k < ids[b] && k % 3 == 0;"), "(distance & key)");
  EXPECT_EQ(made_of("return (q - k + 2147483600) % 3 == 0 && k % 3 == 0;"), "(distance & key)");
  EXPECT_EQ(made_of("return (k - 2147483600 - q) % 3 == 0 && k % 3 == 0;"), "(distance & key)");
  EXPECT_EQ(made_of("return (k - 2147483600 - 61 - q) % 3 == 0 && k % 3 == 0;"), "(score & key)");
  EXPECT_EQ(made_of("return (61 - k + 2147483600 + q) % 3 == 0 && k % 3 == 0;"), "(score & key)");
  EXPECT_EQ(made_of("return (q + (seqlen_kv - seqlen_q) - 4096 - k) % 3 == 0 && k % 3 == 0;"),
            "(distance & key)");
}

// It says of tiles what it likes, and of scores what its body says.
TEST(MaskParts, OfTextsThatClassify) {
  FunctorText text = parts_text("return k <= q && k % 3 == 0;");
  text.classify = "return TileClass::partial;";
  ASSERT_NE(mask_parts(text), nullptr);
  EXPECT_EQ(mask_parts(text)->parts.size(), 3u);
}

// Conditions that stand one in another, and many of them, take neither long nor much room.
TEST(MaskParts, AreFew) {
  std::string chain;
  for (int i = 0; i < 200; ++i)
    chain += "if (q - k == " + std::to_string(i * 7) + " && k % 5 != 2) return k % 3 == 0;\n";
  EXPECT_EQ(made_of(chain + "return false;"), "");
  std::string distances;
  for (int i = 0; i < 12; ++i)
    distances += "if (q - k == " + std::to_string(i * 7) + ") return k % 3 == 0;\n";
  EXPECT_NE(made_of(distances + "return false;"), "");
}

/// Which scores of some queries and keys the parts of a text keep, asked as kernels ask.
class Scores {
 public:
  static constexpr int rows = 16, columns = 32;

  Scores(const MaskParts& parts, const TextPlace& first) : first_(first) {
    for (const MaskPart& part : parts.parts) kept_.push_back(kept(part));
  }

  bool at(int row, int column) const { return kept_.back()[index(row, column)]; }

 private:
  using Kept = std::array<bool, rows * columns>;
  static std::size_t index(int row, int column) { return static_cast<std::size_t>(row * columns + column); }
  TextPlace place(int row, int column) const {
    TextPlace place = first_;
    place[0] += row, place[1] += column;
    return place;
  }
  bool exists(int row, int column) const {
    return first_[0] + row < first_[5] && first_[1] + column < first_[6];
  }

  // The score that is asked for another one.
  static std::array<int, 2> spokesman(Kind kind, int row, int column) {
    switch (kind) {
      case Kind::query:
        return {row, 0};
      case Kind::key:
        return {0, column};
      case Kind::distance:
        return {row - std::min(row, column), column - std::min(row, column)};
      case Kind::block:
        return {row / 8 * 8, column / 16 * 16};
      default:
        return {row, column};
    }
  }

  Kept kept(const MaskPart& part) const {
    const auto of = [&](int i) -> const Kept& { return kept_[static_cast<std::size_t>(i)]; };
    Kept result{}, asked{}, answers{}, is_known{};
    const auto for_existing = [&](const auto& f) {
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
          if (exists(row, column)) f(row, column);
    };
    const auto index_of_spokesman = [&](int row, int column) {
      const std::array<int, 2> at = spokesman(part.kind, row, column);
      EXPECT_TRUE(exists(at[0], at[1]));
      return index(at[0], at[1]);
    };
    if (part.asked >= 0) {
      for_existing([&](int row, int column) {
        asked[index_of_spokesman(row, column)] |= of(part.asked)[index(row, column)];
      });
    }
    for_existing([&](int row, int column) {
      const std::size_t i = index(row, column);
      const TextPlace here = place(row, column);
      if (part.kind == Kind::both) {
        result[i] = of(part.a)[i] && of(part.b)[i];
      } else if (part.kind == Kind::either) {
        result[i] = of(part.a)[i] || of(part.b)[i];
      } else if (part.kind == Kind::inverse) {
        result[i] = !of(part.a)[i];
      } else if (part.kind == Kind::range) {
        result[i] = (!part.range.begin || Number(*part.range.begin, here).result() <= here[1]) &&
                    (!part.range.end || here[1] < Number(*part.range.end, here).result());
      } else {
        const std::size_t spokesman = index_of_spokesman(row, column);
        if (!is_known[spokesman]) {
          const int first = static_cast<int>(spokesman);
          answers[spokesman] =
              Number(part.meaning, place(first / columns, first % columns), asked[spokesman]).result() != 0;
          is_known[spokesman] = true;
        }
        result[i] = answers[spokesman];
      }
    });
    return result;
  }

  TextPlace first_;
  std::vector<Kept> kept_;
};

TEST(MaskParts, OfRandomTextsAreNeverWrong) {
  const std::uint64_t seed = reference::test_seed();
  std::mt19937_64 random(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  constexpr int texts = 800;
  std::array<int, 6> seen{};
  int known = 0;
  for (int i = 0; i < texts; ++i) {
    const testing::RandomMaskText text = testing::random_part_text(random);
    const auto parts = mask_parts(parts_text(text.body));
    if (!parts) continue;
    ++known;
    for (const MaskPart& part : parts->parts)
      if (part.kind <= Kind::score) ++seen[static_cast<std::size_t>(part.kind)];
    const int seqlen_q = 1 + below(120), seqlen_kv = 1 + below(120);
    const TextPlace first = {below((seqlen_q + 7) / 8) * 8,
                             below((seqlen_kv + 15) / 16) * 16,
                             below(4),
                             below(8),
                             8,
                             seqlen_q,
                             seqlen_kv};
    const Scores scores(*parts, first);
    for (int asked = 0; asked < 40; ++asked) {
      const int row = below(std::min(Scores::rows, seqlen_q - first[0])),
                column = below(std::min(Scores::columns, seqlen_kv - first[1]));
      TextPlace place = first;
      place[0] += row, place[1] += column;
      const std::optional<bool> keeps = text.keep(place);
      if (!keeps) continue;
      ASSERT_EQ(*keeps, scores.at(row, column))
          << "seed " << seed << ", q " << place[0] << ", k " << place[1] << " from " << first[0] << ", "
          << first[1] << "; " << seqlen_q << ", " << seqlen_kv << "\n"
          << text.body << "\n"
          << described(*parts, static_cast<int>(parts->parts.size()) - 1);
    }
  }
  EXPECT_GT(known, texts / 3) << "else nothing was tested";
  for (const int parts : seen) EXPECT_GT(parts, texts / 40);
}

}  // namespace
}  // namespace jit
