// Rules of bounds whose numbers have 64 bits, near where those end: there is no wider type to compute in, and each way of
// forgetting that is noticed.
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulator/tests/support/ptx_run.h"
#include "tests/mutation/interval_program.h"

namespace jit::testing::interval_wide_rules_mutations {
namespace {

constexpr int pairs = 1024;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min(),
                       highest = std::numeric_limits<std::int64_t>::max();

/// Bounds of two numbers, and of how far bits are moved.
struct Operands {
  std::int64_t x_low, x_high, y_low, y_high;
  int by_low, by_high;
};

/// The kernel's operations on them, in this order.
constexpr std::array rules = {"x + y", "x - y", "x * y", "x / y", "x % y", "-x", "abs", "x << by", "x >> by"};

constexpr const char* source = R"(
#include "problem/interval.cuh"
using namespace jit;
struct Operands {
  long long x_low, x_high, y_low, y_high;
  int by_low, by_high;
};
extern "C" __global__ void ask(const Operands* operands, long long* answers) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const Operands o = operands[i];
  const Interval<long long> x(o.x_low, o.x_high), y(o.y_low, o.y_high);
  const Interval<int> by(o.by_low, o.by_high);
  long long* to = answers + i * 18;
  const auto put = [&](Interval<long long> bounds) {
    *to++ = bounds.low;
    *to++ = bounds.high;
  };
  put(x + y), put(x - y), put(x * y), put(x / y), put(x % y), put(-x), put(magnitude(x)), put(x << by), put(x >> by);
}
)";

/// A few numbers wide, from near zero, powers of two, and the ends of the type.
std::vector<Operands> random_operands() {
  std::mt19937_64 random(5);
  constexpr std::int64_t half = std::int64_t{1} << 31, root = std::int64_t{1} << 32,
                         quarter = std::int64_t{1} << 62;
  constexpr std::array places = {std::int64_t{0}, half,     -half,  root,   -root,
                                 quarter,         -quarter, lowest, highest};
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(bound));
  };
  const auto bounds = [&] {
    const std::int64_t place = places[random() % places.size()];
    const std::int64_t low = place > highest - 12  ? place - below(4)
                             : place < lowest + 12 ? place + below(4)
                                                   : place + below(9) - 4;
    return std::pair(low, low > highest - 5 ? highest : low + below(5));
  };
  std::vector<Operands> made;
  for (int i = 0; i < pairs; ++i) {
    const auto [x_low, x_high] = bounds();
    const auto [y_low, y_high] =
        i % 8 == 0 ? std::pair<std::int64_t, std::int64_t>(-1 - below(3), -1) : bounds();
    const int by = below(66) - 1;
    made.push_back({x_low, x_high, y_low, y_high, by, by + below(3)});
  }
  return made;
}

/// A result of single numbers; nothing where C++ does not define it, or a text cannot say.
using Exact = std::optional<__int128>;

std::array<Exact, rules.size()> exact_results(std::int64_t a, std::int64_t b, int by) {
  const __int128 x = a, y = b;
  const auto shifted = [&](int most, auto make) { return by < 0 || by > most ? Exact() : Exact(make()); };
  return {x + y,
          x - y,
          x * y,
          y == 0 ? Exact() : x / y,
          y == 0 ? Exact() : x % y,
          -x,
          x < 0 ? -x : x,
          shifted(30, [&] { return x * (__int128{1} << by); }),
          shifted(63, [&] { return x >> by; })};
}

/// Which rule says what is wrong; empty: none does.
std::string wrong_rule(const ProgramMutation* mutation = nullptr) {
  const std::string ptx = interval_ptx(source, mutation);
  const std::vector<Operands> asked = random_operands();
  emulator::testing::TestDevice device;
  constexpr std::size_t of_pair = 2 * rules.size();
  const std::uint64_t answers = device.room<std::int64_t>(of_pair * pairs);
  const emulator::LaunchResult result =
      device.run(ptx, {.grid = {pairs / 32, 1, 1}, .block = {32, 1, 1}}, {}, device.upload(asked), answers);
  for (const emulator::Finding& finding : result.findings) return to_string(finding);
  const std::vector<std::int64_t> known = device.download<std::int64_t>(answers, of_pair * pairs);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Operands& o = asked[i];
    for (std::int64_t a = o.x_low;; ++a) {
      for (std::int64_t b = o.y_low;; ++b) {
        for (int by = o.by_low; by <= o.by_high; ++by) {
          const auto exact = exact_results(a, b, by);
          for (std::size_t rule = 0; rule < rules.size(); ++rule) {
            if (!exact[rule]) continue;
            const std::int64_t low = known[i * of_pair + 2 * rule], high = known[i * of_pair + 2 * rule + 1];
            const bool fits = *exact[rule] >= lowest && *exact[rule] <= highest;
            if (fits ? low <= *exact[rule] && *exact[rule] <= high : low == lowest && high == highest)
              continue;
            return fmt::format("{} of x = {} in [{}, {}], y = {} in [{}, {}], by {} is not in [{}, {}]",
                               rules[rule], a, o.x_low, o.x_high, b, o.y_low, o.y_high, by, low, high);
          }
        }
        if (b == o.y_high) break;
      }
      if (a == o.x_high) break;
    }
  }
  return "";
}

TEST(WideIntervalRules, AreRightUnmutated) { EXPECT_EQ(wrong_rule(), ""); }

class WideIntervalRuleMutation : public ProgramMutationTest {};

TEST_P(WideIntervalRuleMutation, IsCaught) { EXPECT_NE(wrong_rule(&GetParam()), ""); }

INSTANTIATE_TEST_SUITE_P(
    Rules, WideIntervalRuleMutation,
    ::testing::Values(ProgramMutation{"SumsWrap", removed}, ProgramMutation{"DifferencesWrap", removed},
                      ProgramMutation{"ProductsWrap", {"(($) &&", "(!NumberRange<T>::is_signed &&"}},
                      ProgramMutation{"SmallNumbersAreLarge", {"2147483648ll", "4611686018427387904ll"}},
                      ProgramMutation{"AreSmall_OnlyTheFirst", {" && y.low$;", ";"}},
                      ProgramMutation{"AreSmall_OnlyTheSecond", {"return $ y", "return y"}},
                      ProgramMutation{"QuotientsThatOverflow", {"return $ : ", "return "}},
                      ProgramMutation{"RemaindersByTheLowest", {"0) $) ", "0)) "}},
                      ProgramMutation{"MagnitudesOfTheLowest", {"x) $)", "x) : false)"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::interval_wide_rules_mutations
