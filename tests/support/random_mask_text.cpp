#include "tests/support/random_mask_text.h"

#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace jit::testing {
namespace {

/// Thrown where C++ leaves open what happens.
struct Undefined {};

/// The inputs of an expression: the place, and the text's own variables.
struct Scene {
  TextPlace place;
  std::vector<std::int32_t> variables;
};

/// An expression of a type, as text and as meaning. `level` tells how loosely it binds, as in C++: 0 is a name.
template <class T>
struct Expression {
  std::string text;
  int level;
  std::function<T(const Scene&)> value;
};
using Whole = Expression<std::int32_t>;
using Natural = Expression<std::uint32_t>;
using Real = Expression<float>;
using Long = Expression<std::int64_t>;
using Truth = Expression<bool>;

std::int32_t checked(std::int64_t exact) {
  if (exact < std::numeric_limits<std::int32_t>::min() || exact > std::numeric_limits<std::int32_t>::max())
    throw Undefined();
  return static_cast<std::int32_t>(exact);
}

template <class T>
std::string in(const Expression<T>& x, int level) {
  return x.level <= level ? x.text : "(" + x.text + ")";
}

class Author {
 public:
  explicit Author(std::mt19937_64& random) : random_(random) {}

  RandomMaskText write_ranges() {
    RandomMaskText text;
    const bool returns_early = below(3) == 0;
    const Truth early = ranges(1), last = ranges(2);
    const bool kept_early = below(2);
    if (returns_early) text.body = fmt::format("if ({}) return {};\n", early.text, kept_early);
    text.body += fmt::format("return {};", last.text);
    text.keep = [=](const TextPlace& place) -> std::optional<bool> {
      const Scene scene{place, {}};
      try {
        return returns_early && early.value(scene) ? kept_early : last.value(scene);
      } catch (const Undefined&) {
        return {};
      }
    };
    return text;
  }

  RandomMaskText write_parts() {
    RandomMaskText text;
    const bool returns_early = below(3) == 0;
    const Truth early = parts(1), kept_early = parts(0), last = parts(2);
    if (returns_early) text.body = fmt::format("if ({}) return {};\n", early.text, kept_early.text);
    text.body += fmt::format("return {};", last.text);
    text.keep = [=](const TextPlace& place) -> std::optional<bool> {
      const Scene scene{place, {}};
      try {
        return returns_early && early.value(scene) ? kept_early.value(scene) : last.value(scene);
      } catch (const Undefined&) {
        return {};
      }
    };
    return text;
  }

  RandomMaskText write() {
    RandomMaskText text;
    std::function<bool(const Scene&)> meaning;
    const int variables = below(3);
    std::vector<std::function<void(Scene&)>> steps;
    for (int i = 0; i < variables; ++i) {
      const Whole first = whole(2);
      text.body += fmt::format("{} v{} = {};\n", below(2) ? "int" : "auto", i, first.text);
      steps.push_back([first](Scene& s) { s.variables.push_back(first.value(s)); });
      ++variables_;
      if (below(2)) {
        const Truth condition = truth(1);
        const Whole then = whole(1), otherwise = whole(1);
        const auto at = static_cast<std::size_t>(below(variables_));
        const bool has_else = below(2);
        text.body += fmt::format("if ({}) {{ v{} = {}; }}{}\n", condition.text, at, then.text,
                                 has_else ? fmt::format(" else v{} += {};", at, otherwise.text) : "");
        steps.push_back([=](Scene& s) {
          if (condition.value(s)) {
            s.variables[at] = then.value(s);
          } else if (has_else) {
            s.variables[at] = checked(std::int64_t{s.variables[at]} + otherwise.value(s));
          }
        });
      }
    }
    const bool returns_early = below(2);
    const Truth early = truth(1), first = truth(1), last = truth(3);
    if (returns_early) text.body += fmt::format("if ({}) return {};  // early\n", early.text, first.text);
    text.body += fmt::format("return {};", last.text);
    text.keep = [=](const TextPlace& place) -> std::optional<bool> {
      Scene scene{place, {}};
      try {
        for (const auto& step : steps) step(scene);
        if (returns_early && early.value(scene)) return first.value(scene);
        return last.value(scene);
      } catch (const Undefined&) {
        return {};
      }
    };
    return text;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

  template <class T, class A, class B, class F>
  static Expression<T> two(const std::string& sign, int level, const A& a, const B& b, F f) {
    // The right operand binds tighter: a - (b - c).
    return {fmt::format("{} {} {}", in(a, level), sign, in(b, level - 1)), level,
            [a, b, f](const Scene& s) { return static_cast<T>(f(a.value(s), b.value(s))); }};
  }

  Whole leaf() {
    static constexpr std::array<const char*, 7> names = {"q",       "k",        "b",        "h",
                                                         "heads_q", "seqlen_q", "seqlen_kv"};
    if (below(4) == 0) {
      const std::int32_t number = below(3) ? below(40) : below(100000);
      return {below(6) ? std::to_string(number) : fmt::format("{:#x}", number), 0,
              [number](const Scene&) { return number; }};
    }
    if (variables_ > 0 && below(3) == 0) {
      const auto at = static_cast<std::size_t>(below(variables_));
      return {fmt::format("v{}", at), 0, [at](const Scene& s) { return s.variables[at]; }};
    }
    const auto drawn = static_cast<std::size_t>(below(3) ? below(2) : below(7));
    const std::size_t input = drawn == 1 && !may_read_key_ ? 0 : drawn;
    return {names[input], 0, [input](const Scene& s) { return s.place[input]; }};
  }

  Whole whole(int depth) {
    if (depth == 0) return leaf();
    switch (below(13)) {
      case 0:
        return two<std::int32_t>("+", 4, whole(depth - 1), whole(depth - 1),
                                 [](std::int64_t x, std::int64_t y) { return checked(x + y); });
      case 1:
      case 2:
        return two<std::int32_t>("-", 4, whole(depth - 1), whole(depth - 1),
                                 [](std::int64_t x, std::int64_t y) { return checked(x - y); });
      case 3:
        return two<std::int32_t>("*", 3, whole(depth - 1), whole(depth - 1),
                                 [](std::int64_t x, std::int64_t y) { return checked(x * y); });
      case 4:
        return two<std::int32_t>(
            "/", 3, whole(depth - 1), whole(depth - 1),
            [](std::int64_t x, std::int64_t y) { return y == 0 ? throw Undefined() : checked(x / y); });
      case 5:
        return two<std::int32_t>("%", 3, whole(depth - 1), whole(depth - 1),
                                 [](std::int64_t x, std::int64_t y) {
                                   return y == 0 ? throw Undefined() : checked(x / y), x % y;
                                 });
      case 6: {
        const int bits = below(5);
        const Whole x = whole(depth - 1);
        const bool is_left = below(2);
        return {fmt::format("{} {} {}", in(x, 5), is_left ? "<<" : ">>", bits), 5, [=](const Scene& s) {
                  const std::int64_t value = x.value(s);
                  return is_left ? checked(value * (1 << bits)) : static_cast<std::int32_t>(value >> bits);
                }};
      }
      case 7: {
        const int kind = below(3);
        return two<std::int32_t>(kind == 0   ? "&"
                                 : kind == 1 ? "^"
                                             : "|",
                                 8 + kind, whole(depth - 1), whole(depth - 1),
                                 [kind](std::int32_t x, std::int32_t y) {
                                   return kind == 0 ? x & y : kind == 1 ? x ^ y : x | y;
                                 });
      }
      case 8: {
        const Whole x = whole(depth - 1);
        if (below(2)) return {"~" + in(x, 2), 2, [x](const Scene& s) { return ~x.value(s); }};
        return {"- " + in(x, 2), 2, [x](const Scene& s) { return checked(-std::int64_t{x.value(s)}); }};
      }
      case 9: {
        const Whole x = whole(depth - 1), y = whole(depth - 1);
        const bool is_least = below(2);
        return {fmt::format("{}({}, {})", is_least ? "min" : "max", x.text, y.text), 1, [=](const Scene& s) {
                  const std::int32_t a = x.value(s), b = y.value(s);
                  return is_least ? std::min(a, b) : std::max(a, b);
                }};
      }
      case 10: {
        const Whole x = whole(depth - 1);
        return {fmt::format("abs({})", x.text), 1,
                [x](const Scene& s) { return checked(std::abs(std::int64_t{x.value(s)})); }};
      }
      case 11: {
        const Truth condition = truth(depth - 1);
        const Whole x = whole(depth - 1), y = whole(depth - 1);
        return {fmt::format("{} ? {} : {}", in(condition, 12), in(x, 15), in(y, 15)), 15,
                [=](const Scene& s) { return condition.value(s) ? x.value(s) : y.value(s); }};
      }
      default: {
        const Whole x = whole(depth - 1);
        return {fmt::format("ids[{} & 1023]", in(x, 8)), 1,
                [x](const Scene& s) { return random_text_id(x.value(s) & 1023); }};
      }
    }
  }

  Natural natural(int depth) {
    const Whole x = whole(depth);
    const Natural converted{fmt::format("static_cast<unsigned>({})", x.text), 1,
                            [x](const Scene& s) { return static_cast<std::uint32_t>(x.value(s)); }};
    if (depth == 0 || below(2)) return converted;
    const std::uint32_t number = static_cast<std::uint32_t>(below(50));
    const Natural literal{fmt::format("{}u", number), 0, [number](const Scene&) { return number; }};
    switch (below(3)) {
      case 0:
        return two<std::uint32_t>("+", 4, converted, literal, std::plus<std::uint32_t>());
      case 1:
        return two<std::uint32_t>("-", 4, converted, literal, std::minus<std::uint32_t>());
      default:
        return two<std::uint32_t>("*", 3, converted, literal, std::multiplies<std::uint32_t>());
    }
  }

  Real real(int depth) {
    if (depth == 0 || below(3) == 0) {
      if (below(3) == 0) {
        const float number = static_cast<float>(below(4000)) * 0.0625f - 60;
        const std::string text =
            fmt::format("{}f", std::abs(number) < 1e-9f ? "0.0" : fmt::format("{:#.6g}", std::abs(number)));
        const Real magnitude{text, 0, [number](const Scene&) { return std::abs(number); }};
        return magnitude;
      }
      const Whole x = whole(depth > 0 ? depth - 1 : 0);
      return {fmt::format("static_cast<float>({})", x.text), 1,
              [x](const Scene& s) { return static_cast<float>(x.value(s)); }};
    }
    switch (below(5)) {
      case 0:
        return two<float>("+", 4, real(depth - 1), real(depth - 1), std::plus<float>());
      case 1:
        return two<float>("-", 4, real(depth - 1), real(depth - 1), std::minus<float>());
      case 2:
        return two<float>("*", 3, real(depth - 1), real(depth - 1), std::multiplies<float>());
      case 3:
        return two<float>("/", 3, real(depth - 1), real(depth - 1), [](float x, float y) { return x / y; });
      default: {
        const Real x = real(depth - 1);
        return {fmt::format("fabsf({})", x.text), 1, [x](const Scene& s) { return std::abs(x.value(s)); }};
      }
    }
  }

  // A number that does not depend on the key.
  Whole of_query() {
    may_read_key_ = false;
    const Whole x = below(3) == 0 ? whole(2)
                    : below(2) == 0
                        ? number()
                        : two<std::int32_t>("+", 4, leaf(), number(),
                                            [](std::int64_t a, std::int64_t b) { return checked(a + b); });
    may_read_key_ = true;
    return x;
  }
  Whole number() {
    const std::int32_t value = below(12) ? below(12) ? 1 + below(60) : 0 : 2147483647 - below(60);
    return {std::to_string(value), 0, [value](const Scene&) { return value; }};
  }
  Whole negative(const Whole& x) {
    return {"- " + in(x, 2), 2, [x](const Scene& s) { return checked(-std::int64_t{x.value(s)}); }};
  }

  // A number that is made of the key once.
  Whole of_key(int depth) {
    if (depth == 0) return {"k", 0, [](const Scene& s) { return s.place[1]; }};
    const auto plus = [](std::int64_t x, std::int64_t y) { return checked(x + y); };
    const auto minus = [](std::int64_t x, std::int64_t y) { return checked(x - y); };
    const auto times = [](std::int64_t x, std::int64_t y) { return checked(x * y); };
    const Whole x = of_key(depth - 1);
    switch (below(10)) {
      case 0:
        return two<std::int32_t>("+", 4, x, of_query(), plus);
      case 1:
        return two<std::int32_t>("+", 4, of_query(), x, plus);
      case 2:
        return two<std::int32_t>("-", 4, x, of_query(), minus);
      case 3:
      case 4:
        return two<std::int32_t>("-", 4, of_query(), x, minus);
      case 5:
        return below(2) ? two<std::int32_t>("*", 3, x, number(), times)
                        : two<std::int32_t>("*", 3, negative(number()), x, times);
      case 6:
        return two<std::int32_t>(
            "/", 3, x, below(2) ? number() : negative(number()),
            [](std::int64_t a, std::int64_t b) { return b == 0 ? throw Undefined() : checked(a / b); });
      case 7: {
        const int bits = below(3) ? below(8) : below(32);
        return {fmt::format("{} >> {}", in(x, 5), bits), 5,
                [=](const Scene& s) { return x.value(s) >> bits; }};
      }
      case 8:
        return negative(x);
      default:
        return {fmt::format("abs({})", x.text), 1,
                [x](const Scene& s) { return checked(std::abs(std::int64_t{x.value(s)})); }};
    }
  }

  Long long_of(const Whole& x) {
    return {fmt::format("static_cast<long long>({})", x.text), 1,
            [x](const Scene& s) { return std::int64_t{x.value(s)}; }};
  }
  Long long_number() {
    constexpr std::array<std::int64_t, 7> numbers = {0,          100,       2147483647,         2147483648,
                                                     2147483649, 1ll << 40, 9223372036854775807};
    const std::int64_t value = numbers[static_cast<std::size_t>(below(7))];
    const bool is_negative = below(2);
    return {fmt::format("{}{}ll", is_negative ? "-" : "", value), 2,
            [=](const Scene&) { return is_negative ? -value : value; }};
  }

  template <class T>
  Truth in_order(const Expression<T>& x, const Expression<T>& y) {
    if (below(8) == 0) return comparison(x, y);
    return below(2) ? two<bool>("<", 6, x, y, std::less<T>())
                    : two<bool>(">=", 6, x, y, std::greater_equal<T>());
  }

  Truth ranges(int depth) {
    const int kind = depth == 0 ? 0 : below(12);
    if (kind <= 1) {
      const Whole x = of_key(below(4));
      if (below(8) == 0) {
        const Long wide = long_of(x), other = long_number();
        return below(2) ? in_order(wide, other) : in_order(other, wide);
      }
      const Whole other = of_query();
      return below(2) ? in_order(x, other) : in_order(other, x);
    }
    if (kind == 2) {
      may_read_key_ = false;
      const Truth x = comparison(whole(1), whole(1));
      may_read_key_ = true;
      return x;
    }
    const Truth x = ranges(depth - 1), y = ranges(depth - 1);
    if (kind == 3) return {"!" + in(x, 2), 2, [x](const Scene& s) { return !x.value(s); }};
    if (kind == 4) {
      may_read_key_ = below(4) == 0;
      const Truth condition = comparison(whole(1), whole(1));
      may_read_key_ = true;
      return {fmt::format("{} ? {} : {}", in(condition, 12), in(x, 15), in(y, 15)), 15,
              [=](const Scene& s) { return condition.value(s) ? x.value(s) : y.value(s); }};
    }
    return joined(x, y, kind < 10);
  }

  Whole quotient(const char* name, std::size_t input) {
    const bool is_shifted = below(2);
    const int by = is_shifted ? below(7) : 8 * (1 + below(8)) - below(2) * below(8);
    return {fmt::format("{} {} {}", name, is_shifted ? ">>" : "/", by), is_shifted ? 5 : 3,
            [=](const Scene& s) { return is_shifted ? s.place[input] >> by : s.place[input] / by; }};
  }

  // A number of one of those that parts are of: what is read is guarded by the caller, below `bound`.
  Whole of_part(int kind) {
    const auto plus = [](std::int64_t x, std::int64_t y) { return checked(x + y); };
    const auto minus = [](std::int64_t x, std::int64_t y) { return checked(x - y); };
    const auto times = [](std::int64_t x, std::int64_t y) { return checked(x * y); };
    const Whole q{"q", 0, [](const Scene& s) { return s.place[0]; }};
    const Whole k{"k", 0, [](const Scene& s) { return s.place[1]; }};
    if (kind == 0) return q;
    if (kind == 1) return k;
    if (kind == 2) {
      const Whole p = below(2) ? q : two<std::int32_t>("+", 4, q, of_neither(), plus);
      const Whole x = two<std::int32_t>("-", 4, p, k, minus);
      return below(3) ? x : negative(x);
    }
    if (kind == 3) {
      const Whole x = two<std::int32_t>("*", 3, quotient("q", 0), number(), times);
      return two<std::int32_t>("+", 4, x, quotient("k", 1), plus);
    }
    return two<std::int32_t>("+", 4, q, two<std::int32_t>("*", 3, k, number(), times), plus);
  }
  Whole of_neither() {
    const std::size_t input = 2 + static_cast<std::size_t>(below(5));
    static constexpr std::array<const char*, 5> names = {"b", "h", "heads_q", "seqlen_q", "seqlen_kv"};
    return {names[input - 2], 0, [input](const Scene& s) { return s.place[input]; }};
  }

  Truth part() {
    if (below(5) == 0) return ranges(0);
    const Whole x = of_part(below(9) % 5);
    const std::int32_t factor = 2 + below(5);
    const Whole rest = two<std::int32_t>(
        "%", 3, x, Whole{std::to_string(factor), 0, [factor](const Scene&) { return factor; }},
        [](std::int64_t a, std::int64_t b) { return a % b; });
    switch (below(4)) {
      case 0:
        return comparison(x, below(2) ? number() : of_neither());
      case 1:
        return comparison(
            rest, Whole{std::to_string(factor - 2), 0, [factor](const Scene&) { return factor - 2; }});
      case 2:
        return comparison(Whole{fmt::format("abs({})", x.text), 1,
                                [x](const Scene& s) { return checked(std::abs(std::int64_t{x.value(s)})); }},
                          number());
      default: {
        // Elements are there for some numbers alone.
        const Whole bound = {"50", 0, [](const Scene&) { return 50; }},
                    none = {"0", 0, [](const Scene&) { return 0; }};
        const Truth guard = joined(two<bool>(">=", 6, x, none, std::greater_equal<std::int32_t>()),
                                   two<bool>("<", 6, x, bound, std::less<std::int32_t>()), true);
        const Whole read{fmt::format("ids[{} + 974]", in(x, 4)), 1,
                         [x](const Scene& s) { return random_text_id(std::int64_t{x.value(s)} + 974); }};
        const Truth found = comparison(read, Whole{"1", 0, [](const Scene&) { return 1; }});
        return joined(guard, found, true);
      }
    }
  }

  Truth parts(int depth) {
    const int kind = depth == 0 ? 0 : below(12);
    if (kind <= 1) return part();
    const Truth x = parts(depth - 1), y = parts(depth - 1);
    if (kind == 2) return {"!" + in(x, 2), 2, [x](const Scene& s) { return !x.value(s); }};
    if (kind == 3) {
      const Truth condition = part();
      return {fmt::format("{} ? {} : {}", in(condition, 12), in(x, 15), in(y, 15)), 15,
              [=](const Scene& s) { return condition.value(s) ? x.value(s) : y.value(s); }};
    }
    return joined(x, y, kind < 8);
  }

  Truth joined(const Truth& x, const Truth& y, bool is_and) {
    const int level = is_and ? 11 : 12;
    return {
        fmt::format("{} {} {}", in(x, level), is_and ? (below(5) ? "&&" : "and") : "||", in(y, level - 1)),
        level, [=](const Scene& s) { return is_and ? x.value(s) && y.value(s) : x.value(s) || y.value(s); }};
  }

  template <class T>
  Truth comparison(const Expression<T>& x, const Expression<T>& y) {
    switch (below(6)) {
      case 0:
        return two<bool>("<", 6, x, y, std::less<T>());
      case 1:
        return two<bool>("<=", 6, x, y, std::less_equal<T>());
      case 2:
        return two<bool>(">", 6, x, y, std::greater<T>());
      case 3:
        return two<bool>(">=", 6, x, y, std::greater_equal<T>());
      case 4:
        return two<bool>("==", 7, x, y, std::equal_to<T>());
      default:
        return two<bool>("!=", 7, x, y, std::not_equal_to<T>());
    }
  }

  Truth truth(int depth) {
    const int kind = depth == 0 ? 0 : below(8);
    if (kind <= 2) {
      const int operands = std::min(depth, 2);
      const int type = below(6);
      if (type == 0) return comparison(natural(operands), natural(operands));
      if (type == 1) return comparison(real(operands), real(operands));
      return comparison(whole(operands), whole(operands));
    }
    if (kind == 3) {
      const Truth x = truth(depth - 1);
      return {"!" + in(x, 2), 2, [x](const Scene& s) { return !x.value(s); }};
    }
    if (kind == 4) {
      const Truth condition = truth(depth - 1), x = truth(depth - 1), y = truth(depth - 1);
      return {fmt::format("{} ? {} : {}", in(condition, 12), in(x, 15), in(y, 15)), 15,
              [=](const Scene& s) { return condition.value(s) ? x.value(s) : y.value(s); }};
    }
    const Truth x = truth(depth - 1), y = truth(depth - 1);
    return joined(x, y, kind < 7);
  }

  std::mt19937_64& random_;
  int variables_ = 0;
  bool may_read_key_ = true;
};

}  // namespace

RandomMaskText random_mask_text(std::mt19937_64& random) { return Author(random).write(); }
RandomMaskText random_part_text(std::mt19937_64& random) { return Author(random).write_parts(); }
RandomMaskText random_range_text(std::mt19937_64& random) { return Author(random).write_ranges(); }

}  // namespace jit::testing
