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

#include "emulator/tests/support/ptx_run.h"
#include "templates/problem/interval.cuh"
#include "tests/mutation/interval_program.h"

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

/// The kernel's operations on them, in this order.
constexpr std::array rules = {"x + y",  "x - y",       "x * y",    "x / y",  "-x",      "min",    "max",
                              "abs",    "x < y",       "x <= y",   "x == y", "x != y",  "? :",    "bool(x)",
                              "int(x)", "unsigned(x)", "float(x)", "&&",     "||",      "!",      "x % y",
                              "x & y",  "x | y",       "x ^ y",    "~x",     "x << by", "x >> by"};
constexpr int real_rules = 20;

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
  double* to = answers + i * 54;
  const auto put = [&](auto bounds) {
    *to++ = static_cast<double>(bounds.low);
    *to++ = static_cast<double>(bounds.high);
  };
  put(x + y), put(x - y), put(x * y), put(x / y), put(-x), put(least(x, y)), put(most(x, y)), put(magnitude(x));
  put(less), put(x <= y), put(x == y), put(x != y), put(choose(truth, x, y));
  put(convert<bool>(x)), put(convert<int>(x)), put(convert<unsigned>(x)), put(convert<float>(x));
  put(truth && less), put(truth || less), put(!truth);
  if constexpr (!NumberRange<T>::is_real) {
    put(x % y), put(x & y), put(x | y), put(x ^ y), put(~x), put(x << by), put(x >> by);
  }
}
extern "C" __global__ void ask(const Operands<int>* ints, const Operands<unsigned>* naturals,
                               const Operands<float>* reals, double* answers) {
  const int of_type = gridDim.x * blockDim.x * 54;
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
  put(x < y), put(x <= y), put(x == y), put(x != y), put(truth ? number(x) : number(y));
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
  if (rule == 14) return 'i';
  if (rule == 15) return 'u';
  if (rule == 16) return 'f';
  return (rule >= 8 && rule <= 11) || rule == 13 || (rule >= 17 && rule <= 19) ? 'b' : 'T';
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

std::string wrong_rule(const ProgramMutation* mutation = nullptr) {
  const std::string ptx = interval_ptx(source, mutation);
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

class IntervalRuleMutation : public ProgramMutationTest {};

TEST_P(IntervalRuleMutation, IsCaught) { EXPECT_NE(wrong_rule(&GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, IntervalRuleMutation,
    ::testing::Values(
        ProgramMutation{"SumsOfRealsThatMayBeNone", {"interval::rounded($)", "{$}"}},
        ProgramMutation{"SumsOfTheLowEnds", {"high)", "low)"}},
        ProgramMutation{"DifferencesOfRealsOfTheSameEnds", {"high, $low", "low, $high"}},
        ProgramMutation{"DifferencesOfTheSameEnds", {"high, $low", "low, $high"}},
        ProgramMutation{"NegatedRealsKeepTheirOrder", {"{$}", "{-x.low, -x.high}"}},
        ProgramMutation{"NegatedWholeNumbersStay", {"$", "return x;"}},
        ProgramMutation{"ProductsOfTwoCorners", {"{$}", "{lesser(a, d), greater(a, d)}"}},
        ProgramMutation{"ProductsWithoutRounding", {"interval::rounded($)", "{$}"}},
        ProgramMutation{"BoundsThatDoNotFit",
                        {"$", "return Interval<T>(static_cast<T>(low), static_cast<T>(high));"}},
        ProgramMutation{"BoundsThatFitBelow", {"low $ && ", ""}},
        ProgramMutation{"RealsBeyondTheirType", {"$", "return Interval<T>(low, high);"}},
        ProgramMutation{"RealsThatAreNotBounded", {"$", "return true;"}},
        ProgramMutation{"QuotientsByZero", {" ($) ", " (y.low == 0 && y.high == 0) "}},
        ProgramMutation{"QuotientsThatOverflow", {"return $ : ", "return "}},
        ProgramMutation{"QuotientsOfReals", {"$", "return {exact.high, exact.high};"}},
        ProgramMutation{"Remainders_OfSeveralQuotients", {"() $)", "())"}},
        ProgramMutation{"Remainders_ByAnyDivisor", {"if ($ x", "if (x"}},
        ProgramMutation{"RemaindersOfTheLesserDivisor", {"greater", "lesser"}},
        ProgramMutation{"RemaindersHaveNoSign", {"{$ : ", "{"}},
        ProgramMutation{"RemaindersOfNegativeNumbers", {"$}", "T(0)}"}},
        ProgramMutation{"ShiftsLeftByTheLeast", {", $);", ");"}},
        ProgramMutation{"ShiftsRightByTheLeast", {"b $;", "b = a, c = x.high >> by.low, d = c;"}},
        ProgramMutation{"ShiftsRightInOrder", {"{$}", "{a, c}"}},
        ProgramMutation{"BitsTurnedInOrder", {"{$}", "{~x.low, ~x.high}"}},
        ProgramMutation{"LowBitsOfSeveralBlocks", {"if $ return", "return"}},
        ProgramMutation{"BitsThatAreNoRun", {"$", "return true;"}},
        ProgramMutation{"BitsOfTheLesserNumber", {"{$}", "{0, y.low}"}},
        ProgramMutation{"BitsOfTheOtherNumber", {"{$}", "{0, x.low}"}},
        ProgramMutation{"BitsOfNegativeNumbers", removed},
        ProgramMutation{"BitsOfBoth", {"($)", "(x.low, y.low)"}},
        ProgramMutation{"OneOfTheBitsFilled", {"x |= $;", ";"}},
        ProgramMutation{"EitherBit_IsNoLess", {"low,", "high,"}},
        ProgramMutation{"EitherBit_OfTheFirst", {" | $)", ")"}},
        ProgramMutation{"DifferentBitsOfTheFirst", {" | $)", ")"}},
        ProgramMutation{"Less_IfTheLowEndsAre", {"high <", "low <"}},
        ProgramMutation{"Less_OnlyIfAllAre", {", $}", ", x.high < y.low}"}},
        ProgramMutation{"AtMost_IfTheLowEndsAre", {"high", "low"}},
        ProgramMutation{"AtMost_OfNoNumber", {"<= $,", "<= y.low,"}},
        ProgramMutation{"AtMostOnlyIfLess", {"<= y", "< y"}},
        ProgramMutation{"Equal_IfTheLowEndsAre", {"{$ x.", "{x."}},
        ProgramMutation{"Equal_OnlyAtAnEnd", {"<= y$ x", "== y.low || x.high == y"}},
        ProgramMutation{"Both_IfEither", {"{$ &&", "{$ ||"}},
        ProgramMutation{"Both_PossiblyIfCertain", {", $ &&", ", x.low &&"}},
        ProgramMutation{"Either_IfPossible", {"low,", "high,"}},
        ProgramMutation{"Either_PossiblyIfBoth", {", $ ||", ", $ &&"}},
        ProgramMutation{"NotInOrder", {"{!$}", "{!x.low, !x.high}"}},
        ProgramMutation{"DifferentIfNotEqual", {"!(x == y)", "x == y"}},
        ProgramMutation{"OpenConditionsChooseTheFirst", {"low", "high"}},
        ProgramMutation{"OpenConditionsChooseTheSecond", {"high", "low"}},
        ProgramMutation{"ChoicesOfTheSecondEnd", {"), $}", "), y.high}"}},
        ProgramMutation{"LeastOfTheFirst", {"{interval::lesser($)", "{x.low"}},
        ProgramMutation{"LeastOfNoNumber", removed},
        ProgramMutation{"MostOfTheLesserHighEnd", {"), $greater", "), $lesser"}},
        ProgramMutation{"MostOfNoNumber", removed},
        ProgramMutation{"MagnitudesOfTheLowest", {"x) $)", "x) : false)"}},
        ProgramMutation{"Magnitudes_OfTheEnds", {"0,", "interval::lesser(-x.low, x.high),"}},
        ProgramMutation{"Magnitudes_OfTheHighEnd", {"{$}", "{0, x.high}"}},
        ProgramMutation{"MagnitudesOfNegativeNumbers", {"{$}", "x"}},
        ProgramMutation{"TruthOfTheLowEnd", {"x $(", "Interval<bool>(x.low != "}},
        ProgramMutation{"WholeNumbersOfRealsThatDoNotFit",
                        {"$", "return Interval<To>(static_cast<To>(x.low), static_cast<To>(x.high));"}},
        ProgramMutation{"RealsOfTheLowEnd", {"high", "low"}},
        ProgramMutation{"OtherWholeNumbersOfTheLowEnd", {"high", "low"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::interval_rules_mutations
