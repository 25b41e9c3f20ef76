// Every rule of bounds by itself, compiled and asked on the emulator, against numbers within the bounds: each way of
// breaking a rule is noticed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "templates/problem/interval.cuh"
#include "tests/mutation/interval_program.h"
#include "tests/support/ptx_run.h"

namespace jit::testing::interval_rules_mutations {
namespace {

constexpr int pairs = 1024;

/// Bounds of two numbers, of how far bits are moved, and of a truth.
template <class T>
struct Operands {
  T x_low, x_high, y_low, y_high;
  int by_low, by_high;
  int truth_low, truth_high;
};

/// What the kernel makes of them, in this order.
constexpr std::array rules = {
    "x + y", "x - y",  "x * y",  "x / y",  "-x",    "min",     "max",    "abs",         "x < y",    "x <= y",
    "x > y", "x >= y", "x == y", "x != y", "? :",   "bool(x)", "int(x)", "unsigned(x)", "float(x)", "&&",
    "||",    "!",      "x % y",  "x & y",  "x | y", "x ^ y",   "~x",     "x << by",     "x >> by"};
constexpr int real_rules = 22;

constexpr const char* source = R"(
#include "problem/interval.cuh"
using namespace jit;
template <class T>
struct Operands {
  T x_low, x_high, y_low, y_high;
  int by_low, by_high;
  int truth_low, truth_high;
};
template <class T>
__device__ void answer(const Operands<T>* operands, double* answers) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Operands<T> o = operands[i];
  const Interval<T> x(o.x_low, o.x_high), y(o.y_low, o.y_high);
  const Interval<int> by(o.by_low, o.by_high);
  const Interval<bool> truth(o.truth_low != 0, o.truth_high != 0), less = x < y;
  double* to = answers + i * 58;
  const auto put = [&](auto bounds) {
    *to++ = static_cast<double>(bounds.low);
    *to++ = static_cast<double>(bounds.high);
  };
  put(x + y), put(x - y), put(x * y), put(x / y), put(-x), put(least(x, y)), put(most(x, y)), put(magnitude(x));
  put(less), put(x <= y), put(x > y), put(x >= y), put(x == y), put(x != y), put(choose(truth, x, y));
  put(convert<bool>(x)), put(convert<int>(x)), put(convert<unsigned>(x)), put(convert<float>(x));
  put(truth && less), put(truth || less), put(!truth);
  if constexpr (!NumberRange<T>::is_real) {
    put(x % y), put(x & y), put(x | y), put(x ^ y), put(~x), put(x << by), put(x >> by);
  }
}
extern "C" __global__ void ask(const Operands<int>* ints, const Operands<unsigned>* naturals,
                               const Operands<float>* reals, double* answers) {
  const int of_type = gridDim.x * blockDim.x * 58;
  answer(ints, answers);
  answer(naturals, answers + of_type);
  answer(reals, answers + 2 * of_type);
}
)";

template <class T>
Interval<T> random_bounds(std::mt19937& random) {
  if constexpr (NumberRange<T>::is_real) {
    constexpr std::array<T, 9> ends = {0, 1, -1, T(0.1), T(-2.5), T(3e30), T(3e9), T(-70000), T(3e38)};
    if (random() % 16 == 0) return any<T>();
    if (random() % 16 == 0)
      return random() % 2 == 0 ? Interval<T>(-NumberRange<T>::highest) : NumberRange<T>::highest;
    const T low = ends[random() % ends.size()],
            width =
                random() % 3 == 0 ? 0 : std::ldexp(T(random() % 100), static_cast<int>(random() % 30) - 20);
    return {low, low + width};
  } else {
    const auto end =
        static_cast<std::int64_t>(random() % 2 == 0 ? NumberRange<T>::lowest : NumberRange<T>::highest);
    constexpr std::array<int, 6> places = {0, 16, 31, 64, 4096, 65536};
    const std::int64_t place =
        random() % 6 == 0 ? end : places[random() % 4 == 0 ? random() % places.size() : 0];
    const auto clamped = [](std::int64_t number) {
      return static_cast<T>(
          std::clamp<std::int64_t>(number, NumberRange<T>::lowest, NumberRange<T>::highest));
    };
    const std::int64_t low = place + static_cast<std::int64_t>(random() % 19) - 9;
    return {clamped(low), clamped(low + static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 7))};
  }
}

template <class T>
std::vector<Operands<T>> random_operands() {
  std::mt19937 random(5);
  std::vector<Operands<T>> made;
  for (int i = 0; i < pairs; ++i) {
    const Interval<T> x = random_bounds<T>(random), y = i % 8 == 0 ? x : random_bounds<T>(random);
    const int by = static_cast<int>(random() % 34) - 1, truth = static_cast<int>(random() % 3);
    made.push_back(
        {x.low, x.high, y.low, y.high, by, by + static_cast<int>(random() % 3), truth / 2, (truth + 1) / 2});
  }
  return made;
}

/// Some numbers within bounds, all where there are few.
template <class T>
std::vector<T> numbers(T low, T high, std::mt19937& random) {
  std::vector<T> made = {low, high};
  if constexpr (NumberRange<T>::is_real) {
    if (low == -NumberRange<T>::highest && high == NumberRange<T>::highest)
      return {low, high, std::numeric_limits<T>::quiet_NaN(), 1};
    for (int i = 0; i < 3 && low != high; ++i)
      made.push_back(std::clamp(low + (high - low) * T(random() % 1001) / 1000, low, high));
    if (low < 0 && high > 0) made.push_back(0);
  } else {
    for (T number = low; number < high; ++number) made.push_back(number);
  }
  return made;
}

/// A result of single numbers; nothing where C++ does not define it, or a text cannot say.
using Exact = std::optional<double>;

template <class T>
std::array<Exact, rules.size()> exact_results(T a, T b, int by, bool truth) {
  // Real numbers without rounding, or nearly: a compiler may leave it out.
  using Wide = std::conditional_t<NumberRange<T>::is_real, double, std::int64_t>;
  const Wide x = a, y = b;
  std::array<Exact, rules.size()> all;
  std::size_t at = 0;
  const auto put = [&](Exact result) { all[at++] = result; };
  const auto number = [](Wide value) { return static_cast<double>(value); };
  const bool is_real = NumberRange<T>::is_real;
  put(number(x + y)), put(number(x - y)), put(number(x * y));
  put(!is_real && y == 0 ? Exact() : number(is_real || y != 0 ? x / y : x));
  const bool is_none = x != x || y != y;  // what some functions make a number of, and others do not
  put(number(-x));
  put(is_none ? NAN : number(x < y ? x : y)), put(is_none ? NAN : number(x < y ? y : x));
  put(number(x < 0 ? -x : x));
  put(x < y), put(x <= y), put(x > y), put(x >= y), put(x == y), put(x != y),
      put(truth ? number(x) : number(y));
  put(x != 0);
  const double real = number(x);
  put(std::isfinite(real) ? std::trunc(real) : 1e18);  // what does not fit is any number
  put(real > -1 && real < 4294967296.0 ? Exact(std::trunc(real)) : Exact());
  put(static_cast<double>(static_cast<float>(a)));
  put(truth && x < y), put(truth || x < y), put(!truth);
  if constexpr (!NumberRange<T>::is_real) {
    put(y == 0 ? Exact() : number(x % (y == 0 ? 1 : y)));
    put(number(x & y)), put(number(x | y)), put(number(x ^ y)), put(static_cast<double>(static_cast<T>(~a)));
    put(by < 0 || by > 30 ? Exact() : number(x * (Wide{1} << std::clamp(by, 0, 30))));
    put(by < 0 || by > 31 ? Exact() : number(x >> std::clamp(by, 0, 31)));
  }
  return all;
}

// The type of a rule's result: 'T' that of the operands.
char result_type(std::size_t rule) {
  if (rule == 16) return 'i';
  if (rule == 17) return 'u';
  if (rule == 18) return 'f';
  return (rule >= 8 && rule <= 13) || rule == 15 || (rule >= 19 && rule <= 21) ? 'b' : 'T';
}

/// Whether bounds of a T hold what single numbers made.
template <class T>
bool holds(double low, double high, double exact) {
  if (std::isnan(exact)) return low == -HUGE_VAL && high == HUGE_VAL;
  constexpr auto lowest = static_cast<double>(NumberRange<T>::lowest),
                 highest = static_cast<double>(NumberRange<T>::highest);
  if (exact >= lowest && exact <= highest) return low <= exact && exact <= high;
  if (NumberRange<T>::is_signed) return low == lowest && high == highest;
  const double wrapped = exact - 4294967296.0 * std::floor(exact / 4294967296.0);
  return low <= wrapped && wrapped <= high;
}

/// Which rule says what is wrong; empty: none does.
template <class T>
std::string wrong_rule(const std::vector<Operands<T>>& asked, const double* answers) {
  std::mt19937 random(6);
  for (const Operands<T>& o : asked) {
    const double* const own = answers;
    answers += 2 * rules.size();
    for (const T a : numbers(o.x_low, o.x_high, random)) {
      for (const T b : numbers(o.y_low, o.y_high, random)) {
        for (int by = o.by_low; by <= o.by_high; ++by) {
          for (int truth = o.truth_low; truth <= o.truth_high; ++truth) {
            const auto exact = exact_results<T>(a, b, by, truth != 0);
            for (std::size_t rule = 0; rule < (NumberRange<T>::is_real ? real_rules : rules.size()); ++rule) {
              if (!exact[rule]) continue;
              const double low = own[2 * rule], high = own[2 * rule + 1];
              const char type = result_type(rule);
              const bool is_right = type == 'i'   ? holds<int>(low, high, *exact[rule])
                                    : type == 'u' ? holds<unsigned>(low, high, *exact[rule])
                                    : type == 'f' ? holds<float>(low, high, *exact[rule])
                                    : type == 'b' ? low <= *exact[rule] && *exact[rule] <= high
                                                  : holds<T>(low, high, *exact[rule]);
              if (!is_right)
                return fmt::format(
                    "{} of x = {} in [{}, {}], y = {} in [{}, {}], by {}, truth {} is not in [{}, {}]",
                    rules[rule], a, o.x_low, o.x_high, b, o.y_low, o.y_high, by, truth, low, high);
            }
          }
        }
      }
    }
  }
  return "";
}

std::string wrong_rule(const std::string& from = "", const std::string& to = "") {
  const std::string ptx = interval_ptx(source, from, to);
  const auto ints = random_operands<int>();
  const auto naturals = random_operands<unsigned>();
  const auto reals = random_operands<float>();
  emulator::testing::TestDevice device;
  constexpr std::size_t of_type = 2 * rules.size() * pairs;
  const std::uint64_t answers = device.room<double>(3 * of_type);
  const emulator::LaunchResult result =
      device.run(ptx, {.grid = {pairs / 32, 1, 1}, .block = {32, 1, 1}}, {}, device.upload(ints),
                 device.upload(naturals), device.upload(reals), answers);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<double> known = device.download<double>(answers, 3 * of_type);
  for (const std::string& wrong :
       {wrong_rule<int>(ints, known.data()), wrong_rule<unsigned>(naturals, known.data() + of_type),
        wrong_rule<float>(reals, known.data() + 2 * of_type)})
    if (!wrong.empty()) return wrong;
  return "";
}

TEST(IntervalRules, AreRightUnmutated) { EXPECT_EQ(wrong_rule(), ""); }

struct Mutation {
  const char* name;
  const char* from;
  const char* to;
  const char* file = "problem/interval.cuh";
};

class IntervalRuleMutation : public ProgramMutationTest<Mutation> {};

TEST_P(IntervalRuleMutation, IsCaught) { EXPECT_NE(wrong_rule(GetParam().from, GetParam().to), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, IntervalRuleMutation,
    ::testing::Values(
        Mutation{"SumsOfRealsThatMayBeNone", "return interval::rounded(x.low + y.low, x.high + y.high);",
                 "return {x.low + y.low, x.high + y.high};"},
        Mutation{"SumsOfTheLowEnds", "interval::within<T>(a.low + b.low, a.high + b.high)",
                 "interval::within<T>(a.low + b.low, a.high + b.low)"},
        Mutation{"DifferencesOfRealsOfTheSameEnds", "interval::rounded(x.low - y.high, x.high - y.low)",
                 "interval::rounded(x.low - y.low, x.high - y.high)"},
        Mutation{"DifferencesOfTheSameEnds", "interval::within<T>(a.low - b.high, a.high - b.low)",
                 "interval::within<T>(a.low - b.low, a.high - b.high)"},
        Mutation{"NegatedRealsKeepTheirOrder",
                 "    return {-x.high, -x.low};\n  } else {\n    return Interval<T>(0) - x;",
                 "    return {-x.low, -x.high};\n  } else {\n    return Interval<T>(0) - x;"},
        Mutation{"NegatedWholeNumbersStay", "return Interval<T>(0) - x;", "return x;"},
        Mutation{"ProductsOfTwoCorners",
                 "return {lesser(lesser(a, b), lesser(c, d)), greater(greater(a, b), greater(c, d))};",
                 "return {lesser(a, d), greater(a, d)};"},
        Mutation{"ProductsWithoutRounding", "return interval::rounded(product.low, product.high);",
                 "return {product.low, product.high};"},
        Mutation{"BoundsThatDoNotFit",
                 "return fits ? Interval<T>(static_cast<T>(low), static_cast<T>(high)) : any<T>();",
                 "return Interval<T>(static_cast<T>(low), static_cast<T>(high));"},
        Mutation{"BoundsThatFitBelow", "low >= static_cast<Wide>(NumberRange<T>::lowest) &&", ""},
        Mutation{"RealsBeyondTheirType",
                 "return low > Range::lowest && high < Range::highest ? Interval<T>(low, high) : any<T>();",
                 "return Interval<T>(low, high);"},
        Mutation{"RealsThatAreNotBounded",
                 "return x.low > NumberRange<T>::lowest && x.high < NumberRange<T>::highest;",
                 "return true;"},
        Mutation{"QuotientsByZero", "if (y.holds(0)) return any<T>();",
                 "if (y.low == 0 && y.high == 0) return any<T>();"},
        Mutation{"QuotientsThatOverflow", "return may_overflow && y.holds(T(-1)) ? any<T>() : quotient();",
                 "return quotient();"},
        Mutation{"QuotientsOfReals", "return interval::rounded(exact.low, exact.high);",
                 "return {exact.high, exact.high};"},
        Mutation{"RemaindersOfSeveralQuotients", "if (y.is_exact() && x.low / y.low == x.high / y.low)",
                 "if (y.is_exact())"},
        Mutation{"RemaindersByAnyDivisor", "if (y.is_exact() && x.low / y.low == x.high / y.low)",
                 "if (x.low / y.low == x.high / y.low)"},
        Mutation{"RemaindersOfTheLesserDivisor",
                 "const T largest = interval::greater(interval::distance(y.low)",
                 "const T largest = interval::lesser(interval::distance(y.low)"},
        Mutation{"RemaindersHaveNoSign",
                 "return {interval::is_negative(x.low) ? interval::greater<T>(x.low, T(0) - largest) : T(0),",
                 "return {T(0),"},
        Mutation{"RemaindersOfNegativeNumbers",
                 "interval::is_negative(x.high) ? T(0) : interval::lesser(x.high, largest)}", "T(0)}"},
        Mutation{"ShiftsLeftByTheLeast", "return x * Interval<T>(T(1) << by.low, T(1) << by.high);",
                 "return x * Interval<T>(T(1) << by.low);"},
        Mutation{"ShiftsRightByTheLeast",
                 "b = x.low >> by.high, c = x.high >> by.low, d = x.high >> by.high;",
                 "b = a, c = x.high >> by.low, d = c;"},
        Mutation{"ShiftsRightInOrder", "return {interval::lesser(a, b), interval::greater(c, d)};",
                 "return {a, c};"},
        Mutation{"BitsTurnedInOrder", "return {~x.high, ~x.low};", "return {~x.low, ~x.high};"},
        Mutation{"LowBitsOfSeveralBlocks", "if ((x.low & ~bits) == (x.high & ~bits)) return", "return"},
        Mutation{"BitsThatAreNoRun", "return (bits & (bits + 1)) == 0 || (~bits & (~bits + 1)) == 0;",
                 "return true;"},
        Mutation{"BitsOfTheLesserNumber", "if (!x_is_natural) return {0, y.high};",
                 "if (!x_is_natural) return {0, y.low};"},
        Mutation{"BitsOfTheOtherNumber", "if (!y_is_natural) return {0, x.high};",
                 "if (!y_is_natural) return {0, x.low};"},
        Mutation{"BitsOfNegativeNumbers", "if (!x_is_natural && !y_is_natural) return any<T>();", ""},
        Mutation{"BitsOfBoth", "return {0, interval::lesser(x.high, y.high)};",
                 "return {0, interval::lesser(x.low, y.low)};"},
        Mutation{"OneOfTheBitsFilled", "x |= x >> shift;", ";"},
        Mutation{
            "EitherBitIsNoLess",
            "return {interval::greater(x.low, y.low), interval::filled(static_cast<T>(x.high | y.high))};",
            "return {interval::greater(x.high, y.low), interval::filled(static_cast<T>(x.high | y.high))};"},
        Mutation{
            "EitherBitOfTheFirst",
            "return {interval::greater(x.low, y.low), interval::filled(static_cast<T>(x.high | y.high))};",
            "return {interval::greater(x.low, y.low), interval::filled(static_cast<T>(x.high))};"},
        Mutation{"DifferentBitsOfTheFirst", "return {0, interval::filled(static_cast<T>(x.high | y.high))};",
                 "return {0, interval::filled(static_cast<T>(x.high))};"},
        Mutation{"LessIfTheLowEndsAre", "return {x.high < y.low, x.low < y.high};",
                 "return {x.low < y.low, x.low < y.high};"},
        Mutation{"LessOnlyIfAllAre", "return {x.high < y.low, x.low < y.high};",
                 "return {x.high < y.low, x.high < y.low};"},
        Mutation{"AtMostIfTheLowEndsAre", "return {x.high <= y.low &&", "return {x.low <= y.low &&"},
        Mutation{
            "AtMostOfNoNumber",
            "return {x.high <= y.low && !interval::may_be_no_number(x) && !interval::may_be_no_number(y),",
            "return {x.high <= y.low,"},
        Mutation{"AtMostOnlyIfLess", "          x.low <= y.high};", "          x.low < y.high};"},
        Mutation{"GreaterTurned", "  return y < x;", "  return x < y;"},
        Mutation{"AtLeastTurned", "  return y <= x;", "  return x <= y;"},
        Mutation{"EqualIfTheLowEndsAre", "return {x.is_exact() && y.is_exact() && x.low == y.low,",
                 "return {x.low == y.low,"},
        Mutation{"EqualOnlyAtAnEnd", "x.low <= y.high && y.low <= x.high};",
                 "x.low == y.low || x.high == y.high};"},
        Mutation{"BothIfEither", "return {x.low && y.low, x.high && y.high};",
                 "return {x.low || y.low, x.high && y.high};"},
        Mutation{"PossiblyBothIfCertain", "return {x.low && y.low, x.high && y.high};",
                 "return {x.low && y.low, x.low && y.high};"},
        Mutation{"EitherIfPossible", "return {x.low || y.low, x.high || y.high};",
                 "return {x.low || y.high, x.high || y.high};"},
        Mutation{"PossiblyEitherIfBoth", "return {x.low || y.low, x.high || y.high};",
                 "return {x.low || y.low, x.high && y.high};"},
        Mutation{"NotInOrder", "return {!x.high, !x.low};", "return {!x.low, !x.high};"},
        Mutation{"DifferentIfNotEqual", "  return !(x == y);", "  return x == y;"},
        Mutation{"OpenConditionsChooseTheFirst", "if (condition.low) return x;",
                 "if (condition.high) return x;"},
        Mutation{"OpenConditionsChooseTheSecond", "if (!condition.high) return y;",
                 "if (!condition.low) return y;"},
        Mutation{"ChoicesOfTheSecondEnd",
                 "return {interval::lesser(x.low, y.low), interval::greater(x.high, y.high)};",
                 "return {interval::lesser(x.low, y.low), y.high};"},
        Mutation{"LeastOfTheFirst",
                 "return {interval::lesser(x.low, y.low), interval::lesser(x.high, y.high)};",
                 "return {x.low, interval::lesser(x.high, y.high)};"},
        Mutation{"LeastOfNoNumber",
                 "JIT_HOST_DEVICE constexpr Interval<T> least(Interval<T> x, Interval<T> y) {\n  if "
                 "(interval::may_be_no_number(x) || interval::may_be_no_number(y)) return any<T>();",
                 "JIT_HOST_DEVICE constexpr Interval<T> least(Interval<T> x, Interval<T> y) {"},
        Mutation{"MostOfTheLesserHighEnd",
                 "return {interval::greater(x.low, y.low), interval::greater(x.high, y.high)};",
                 "return {interval::greater(x.low, y.low), interval::lesser(x.high, y.high)};"},
        Mutation{"MostOfNoNumber",
                 "JIT_HOST_DEVICE constexpr Interval<T> most(Interval<T> x, Interval<T> y) {\n  if "
                 "(interval::may_be_no_number(x) || interval::may_be_no_number(y)) return any<T>();",
                 "JIT_HOST_DEVICE constexpr Interval<T> most(Interval<T> x, Interval<T> y) {"},
        Mutation{"MagnitudesOfTheLowest",
                 "x.low == NumberRange<T>::lowest) return any<T>();\n  if (!interval",
                 "false) return any<T>();\n  if (!interval"},
        Mutation{"MagnitudesOfTheEnds", "return {0, interval::greater(-x.low, x.high)};",
                 "return {interval::lesser(-x.low, x.high), interval::greater(-x.low, x.high)};"},
        Mutation{"MagnitudesOfTheHighEnd", "return {0, interval::greater(-x.low, x.high)};",
                 "return {0, x.high};"},
        Mutation{"MagnitudesOfNegativeNumbers", "if (x.high <= 0) return {-x.high, -x.low};",
                 "if (x.high <= 0) return x;"},
        Mutation{"TruthOfTheLowEnd", "return x != Interval<From>(From(0));",
                 "return Interval<bool>(x.low != From(0));"},
        Mutation{"WholeNumbersOfRealsThatDoNotFit",
                 "return fits ? Interval<To>(static_cast<To>(x.low), static_cast<To>(x.high)) : any<To>();",
                 "return Interval<To>(static_cast<To>(x.low), static_cast<To>(x.high));"},
        Mutation{"RealsOfTheLowEnd",
                 "const Interval<To> bounds = {static_cast<To>(x.low), static_cast<To>(x.high)};",
                 "const Interval<To> bounds = {static_cast<To>(x.low), static_cast<To>(x.low)};"},
        Mutation{"OtherWholeNumbersOfTheLowEnd", "return interval::within<To>(wide.low, wide.high);",
                 "return interval::within<To>(wide.low, wide.low);"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace jit::testing::interval_rules_mutations
