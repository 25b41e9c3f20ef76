// Operations on bounds, against all numbers within them.
#include "templates/problem/interval.cuh"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace jit {
namespace {

// Numbers around which rules change: zero, powers of two, the ends of the type.
template <class T>
std::vector<T> places() {
  std::vector<T> places;
  for (int i = -9; i <= 9; ++i) places.push_back(static_cast<T>(i));
  for (const T end : {NumberRange<T>::lowest, NumberRange<T>::highest})
    for (int i = -2; i <= 2; ++i)
      places.push_back(static_cast<T>(static_cast<std::uint64_t>(end) + static_cast<std::uint64_t>(i)));
  for (const int power : {16, 31, 64, 4096, 65536}) places.push_back(static_cast<T>(power));
  return places;
}

/// Bounds a few apart, from any place on.
template <class T>
Interval<T> random_interval(std::mt19937& random) {
  static const std::vector<T> all = places<T>();
  const T low = all[random() % all.size()];
  const auto room = static_cast<std::uint64_t>(NumberRange<T>::highest) - static_cast<std::uint64_t>(low);
  return {low, static_cast<T>(static_cast<std::uint64_t>(low) + std::min<std::uint64_t>(random() % 7, room))};
}

template <class T>
void for_each_number(Interval<T> x, const std::function<void(T)>& visit) {
  for (T number = x.low;; ++number) {
    visit(number);
    if (number == x.high) break;
  }
}

// The exact result of two numbers, nothing where C++ does not define it.
using Wide = __int128;
template <class T>
struct Rule {
  const char* name;
  Interval<T> (*of_bounds)(Interval<T>, Interval<T>);
  std::optional<Wide> (*of_numbers)(Wide, Wide);
  bool wraps = false;  // beyond the type natural numbers begin anew
};

template <class T>
std::vector<Rule<T>> rules() {
  using I = Interval<T>;
  return {
      {"+", [](I x, I y) { return x + y; }, [](Wide x, Wide y) { return std::optional(x + y); }},
      {"-", [](I x, I y) { return x - y; }, [](Wide x, Wide y) { return std::optional(x - y); }},
      {"*", [](I x, I y) { return x * y; }, [](Wide x, Wide y) { return std::optional(x * y); }},
      {"/", [](I x, I y) { return x / y; },
       [](Wide x, Wide y) { return y == 0 ? std::nullopt : std::optional(x / y); }},
      {"%", [](I x, I y) { return x % y; },
       [](Wide x, Wide y) { return y == 0 ? std::nullopt : std::optional(x % y); }},
      {"&", [](I x, I y) { return x & y; }, [](Wide x, Wide y) { return std::optional(x & y); }},
      {"|", [](I x, I y) { return x | y; }, [](Wide x, Wide y) { return std::optional(x | y); }},
      {"^", [](I x, I y) { return x ^ y; }, [](Wide x, Wide y) { return std::optional(x ^ y); }},
      {"min", [](I x, I y) { return least(x, y); },
       [](Wide x, Wide y) { return std::optional(x < y ? x : y); }},
      {"max", [](I x, I y) { return most(x, y); },
       [](Wide x, Wide y) { return std::optional(x < y ? y : x); }},
      {"neg", [](I x, I) { return -x; }, [](Wide x, Wide) { return std::optional(-x); }},
      {"~", [](I x, I) { return ~x; }, [](Wide x, Wide) { return std::optional(~x); }},
      {"abs", [](I x, I) { return magnitude(x); },
       [](Wide x, Wide) { return std::optional(x < 0 ? -x : x); }},
      {"<<", [](I x, I y) { return x << convert<int>(y); },
       [](Wide x, Wide y) { return y < 0 || y > 30 ? std::nullopt : std::optional(x * (Wide{1} << y)); }},
      {">>", [](I x, I y) { return x >> convert<int>(y); },
       [](Wide x, Wide y) { return y < 0 || y > 31 ? std::nullopt : std::optional(x >> y); }},
      {"<", [](I x, I y) { return convert<T>(x < y); },
       [](Wide x, Wide y) { return std::optional<Wide>(x < y); }},
      {"<=", [](I x, I y) { return convert<T>(x <= y); },
       [](Wide x, Wide y) { return std::optional<Wide>(x <= y); }},
      {"==", [](I x, I y) { return convert<T>(x == y); },
       [](Wide x, Wide y) { return std::optional<Wide>(x == y); }},
      {"!=", [](I x, I y) { return convert<T>(x != y); },
       [](Wide x, Wide y) { return std::optional<Wide>(x != y); }},
  };
}

template <class T>
class WholeIntervals : public ::testing::Test {};
using WholeTypes = ::testing::Types<int, unsigned, long long>;
TYPED_TEST_SUITE(WholeIntervals, WholeTypes);

TYPED_TEST(WholeIntervals, HoldAllThatNumbersMake) {
  using T = TypeParam;
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    const Interval<T> x = random_interval<T>(random), y = random_interval<T>(random);
    for (const Rule<T>& rule : rules<T>()) {
      const Interval<T> result = rule.of_bounds(x, y);
      for_each_number<T>(x, [&](T a) {
        for_each_number<T>(y, [&](T b) {
          const std::optional<Wide> exact = rule.of_numbers(a, b);
          if (!exact) return;
          // Natural numbers wrap; others leave their type in no defined way, and then must be any.
          const bool fits = *exact >= NumberRange<T>::lowest && *exact <= NumberRange<T>::highest;
          if (fits || !NumberRange<T>::is_signed) {
            ASSERT_TRUE(result.holds(static_cast<T>(*exact)))
                << a << " " << rule.name << " " << b << " is not in [" << result.low << ", " << result.high
                << "]";
          } else {
            ASSERT_TRUE(result.low == NumberRange<T>::lowest && result.high == NumberRange<T>::highest)
                << a << " " << rule.name << " " << b;
          }
        });
      });
    }
  }
}

// Otherwise any bounds would do.
TYPED_TEST(WholeIntervals, AreTight) {
  using T = TypeParam;
  const Interval<T> x(10, 20), y(3, 5);
  const auto is = [](Interval<T> interval, T low, T high) {
    return interval.low == low && interval.high == high;
  };
  EXPECT_TRUE(is(x + y, 13, 25));
  EXPECT_TRUE(is(x - y, 5, 17));
  EXPECT_TRUE(is(x * y, 30, 100));
  EXPECT_TRUE(is(x / y, 2, 6));
  EXPECT_TRUE(is(x % y, 0, 4));
  EXPECT_TRUE(is(x % Interval<T>(8), 0, 7));
  EXPECT_TRUE(is(Interval<T>(17, 22) % Interval<T>(8), 1, 6)) << "one quotient";
  EXPECT_TRUE(is(Interval<T>(17, 22) & Interval<T>(7), 1, 6)) << "one block";
  EXPECT_TRUE(is(x & Interval<T>(7), 0, 7));
  EXPECT_TRUE(is(x & ~Interval<T>(7), 8, 16));
  EXPECT_TRUE(is(x | y, 10, 31));
  EXPECT_TRUE(is(x ^ y, 0, 31));
  EXPECT_TRUE(is(x << Interval<int>(2), 40, 80));
  EXPECT_TRUE(is(x >> Interval<int>(2), 2, 5));
  EXPECT_TRUE(is(least(x, Interval<T>(12)), 10, 12));
  EXPECT_TRUE(is(most(x, Interval<T>(12)), 12, 20));
  EXPECT_TRUE(is(choose(Interval<bool>(true), x, y), 10, 20));
  EXPECT_TRUE(is(choose(Interval<bool>(false), x, y), 3, 5));
  EXPECT_TRUE(is(choose(Interval<bool>(false, true), x, y), 3, 20));
  EXPECT_TRUE((y < x).low && !(x < y).high && (x == x).high && !(x == x).low && !(x == y).high);
}

// Through truths, other whole numbers and real ones.
TEST(Interval, ConvertsAsNumbersDo) {
  std::mt19937 random(8);
  for (int round = 0; round < 4000; ++round) {
    const Interval<int> x = random_interval<int>(random);
    for_each_number<int>(x, [&](int a) {
      ASSERT_TRUE(convert<bool>(x).holds(a != 0)) << a;
      ASSERT_TRUE(convert<unsigned>(x).holds(static_cast<unsigned>(a))) << a;
      ASSERT_TRUE(convert<long long>(x).holds(a)) << a;
      ASSERT_TRUE(convert<float>(x).holds(static_cast<float>(a))) << a;
      ASSERT_TRUE(convert<double>(x).holds(a)) << a;
      ASSERT_TRUE(convert<int>(convert<double>(x)).holds(a)) << a;
    });
  }
  EXPECT_EQ(convert<int>(Interval<float>(-2.75f, 3.75f)).low, -2);
  EXPECT_EQ(convert<int>(Interval<float>(-2.75f, 3.75f)).high, 3);
  EXPECT_EQ(convert<int>(Interval<float>(0, 3e9f)).high, std::numeric_limits<int>::max()) << "any";
  EXPECT_EQ(convert<int>(Interval<float>(0, 3e9f)).low, std::numeric_limits<int>::min()) << "any";
  EXPECT_EQ(convert<unsigned>(Interval<float>(0, 3e9f)).high, 3000000000u);
  EXPECT_EQ(convert<int>(any<float>()).low, std::numeric_limits<int>::min());
  EXPECT_EQ(convert<float>(Interval<double>(0, 1e300)).low, -std::numeric_limits<float>::infinity()) << "any";
}

template <class T>
class RealIntervals : public ::testing::Test {};
using RealTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RealIntervals, RealTypes);

TYPED_TEST(RealIntervals, HoldAllThatNumbersMake) {
  using T = TypeParam;
  std::mt19937 random(9);
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> ends = {0,
                               1,
                               T(-1),
                               T(0.1),
                               T(3e30),
                               T(-2e-30),
                               std::numeric_limits<T>::max(),
                               std::numeric_limits<T>::denorm_min()};
  const auto bounds = [&]() -> Interval<T> {
    const T low = ends[random() % ends.size()] * T(random() % 8),
            width = std::ldexp(T(random() % 100), static_cast<int>(random() % 40) - 20);
    if (!std::isfinite(low) || !std::isfinite(low + width)) return any<T>();
    return {low, low + width};
  };
  const auto within = [&](Interval<T> x) -> T {
    if (x.low == -infinity)
      return std::vector<T>{infinity, -infinity, std::numeric_limits<T>::quiet_NaN(), 1}[random() % 4];
    const T number = x.low + (x.high - x.low) * T(random() % 1001) / 1000;
    return std::min(std::max(number, x.low), x.high);
  };
  for (int round = 0; round < 60000; ++round) {
    const Interval<T> x = bounds(), y = bounds();
    const T a = within(x), b = within(y), c = within(x);
    const auto holds = [&](Interval<T> result, T number) {
      if (std::isnan(number)) return result.low == -infinity && result.high == infinity;
      return result.holds(number);
    };
    EXPECT_TRUE(holds(x + y, a + b)) << a << " + " << b;
    EXPECT_TRUE(holds(x - y, a - b)) << a << " - " << b;
    EXPECT_TRUE(holds(x * y, a * b)) << a << " * " << b;
    EXPECT_TRUE(holds(x / y, a / b)) << a << " / " << b;
    EXPECT_TRUE(holds(-x, -a));
    EXPECT_TRUE(holds(magnitude(x), std::abs(a))) << a;
    EXPECT_TRUE(holds(x * y + x, std::fma(a, b, c))) << "a compiler may contract";
    EXPECT_TRUE(holds(least(x, y), std::fmin(a, b))) << a << " " << b;
    EXPECT_TRUE(holds(most(x, y), std::fmax(a, b))) << a << " " << b;
    EXPECT_TRUE((x < y).holds(a < b) && (x <= y).holds(a <= b)) << a << " " << b;
    EXPECT_TRUE((x == y).holds(a == b) && (x != y).holds(a != b)) << a << " " << b;
    EXPECT_TRUE(convert<int>(x).holds(std::abs(a) < 2e9 ? static_cast<int>(a) : convert<int>(x).low)) << a;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_LT((Interval<T>(1, 2) * Interval<T>(3)).high, T(6.001)) << "not any";
}

TEST(Interval, TruthsAreCertainOrPossible) {
  const Interval<bool> yes(true), no(false), open(false, true);
  for (const Interval<bool> x : {yes, no, open}) {
    for (const Interval<bool> y : {yes, no, open}) {
      for (const bool a : {false, true}) {
        for (const bool b : {false, true}) {
          if (!x.holds(a) || !y.holds(b)) continue;
          EXPECT_TRUE((x && y).holds(a && b) && (x || y).holds(a || b) && (!x).holds(!a));
        }
      }
    }
  }
  EXPECT_TRUE((yes || open).low && !(no && open).high && !(!yes).high && (open && yes).high);
}

// A real number that may be none, such as one that is read, is not even compared with an infinity for certain.
TEST(Interval, InfinitiesAreNumbers) {
  const Interval<float> infinity = NumberRange<float>::highest, unknown = any<float>(), three = 3.0f;
  EXPECT_TRUE((three <= infinity).low && (-infinity < three).low && (infinity == infinity).low);
  EXPECT_FALSE((unknown <= infinity).low || (-infinity <= unknown).low);
  EXPECT_TRUE((unknown <= infinity).high);
  EXPECT_TRUE(least(three, infinity).high == 3 && most(three, -infinity).low == 3);
  EXPECT_TRUE((-infinity).is_exact() && !(infinity - infinity).is_exact() &&
              !(infinity * infinity).is_exact());
  for (const Interval<float> known :
       {least(unknown, three), least(three, unknown), most(unknown, three), most(three, unknown)})
    EXPECT_TRUE(known.low == -infinity.low && known.high == infinity.low)
        << "some make no number of a number and none";
}

}  // namespace
}  // namespace jit
