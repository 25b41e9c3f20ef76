#include "tests/support/random_score_text.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

namespace jit::testing {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Expression {
  std::string text;
  std::function<float(const ScorePlace&)> value;
};
struct Condition {
  std::string text;
  std::function<bool(const ScorePlace&)> value;
};

class Author {
 public:
  explicit Author(std::mt19937_64& random) : random_(random) {}

  RandomScoreText write() {
    const Expression first = real(3), last = real(3);
    const Condition early = condition();
    switch (below(3)) {
      case 0:
        return {"return " + last.text + ";", last.value};
      case 1:
        return {"if (" + early.text + ") return " + first.text + ";\nreturn " + last.text + ";",
                [=](const ScorePlace& at) { return early.value(at) ? first.value(at) : last.value(at); }};
      default:
        return {"auto x = score; if (" + early.text + ") { x = " + first.text + "; }\nx += " + last.text +
                    "; return x;",
                [=](const ScorePlace& at) {
                  return (early.value(at) ? first.value(at) : at.score) + last.value(at);
                }};
    }
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

  Condition condition() {
    const int number = below(60) - 30;
    switch (below(4)) {
      case 0:
        return {fmt::format("score < {}", number),
                [=](const ScorePlace& at) { return at.score < static_cast<float>(number); }};
      case 1:
        return {fmt::format("k < {}", number + 40), [=](const ScorePlace& at) { return at.k < number + 40; }};
      default:
        return {fmt::format("q - k > {}", number),
                [=](const ScorePlace& at) { return at.q - at.k > number; }};
    }
  }

  Expression leaf() {
    static constexpr float numbers[] = {0, 1, -3, 0.5f, 4, 1e30f};
    switch (below(5)) {
      case 0:
        return {"-INFINITY", [](const ScorePlace&) { return -infinity; }};
      case 1:
        return {"INFINITY", [](const ScorePlace&) { return infinity; }};
      case 2: {
        const float x = numbers[below(6)];
        return {fmt::format("{:#g}f", x), [x](const ScorePlace&) { return x; }};
      }
      default:
        return {"score", [](const ScorePlace& at) { return at.score; }};
    }
  }

  Expression real(int depth) {
    if (depth == 0) return leaf();
    const Expression x = real(depth - 1), y = real(depth - 1);
    switch (below(11)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const Condition condition_ = condition();
        return {"(" + condition_.text + " ? " + x.text + " : " + y.text + ")",
                [=](const ScorePlace& at) { return condition_.value(at) ? x.value(at) : y.value(at); }};
      }
      case 4:
        return {"(" + x.text + " + " + y.text + ")",
                [=](const ScorePlace& at) { return x.value(at) + y.value(at); }};
      case 5:
        return {"(" + x.text + " - " + y.text + ")",
                [=](const ScorePlace& at) { return x.value(at) - y.value(at); }};
      case 6:
        return {"(" + x.text + " * " + y.text + ")",
                [=](const ScorePlace& at) { return x.value(at) * y.value(at); }};
      case 7:
        return {"(" + x.text + " / " + y.text + ")",
                [=](const ScorePlace& at) { return x.value(at) / y.value(at); }};
      case 8:
        return {"(- " + x.text + ")", [=](const ScorePlace& at) { return -x.value(at); }};
      case 9:
        return {"fminf(" + x.text + ", " + y.text + ")", [=](const ScorePlace& at) {
                  const float a = x.value(at), b = y.value(at);
                  return at.as_duals ? (b < a ? b : a) : std::fmin(a, b);
                }};
      default:
        return {"fmaxf(" + x.text + ", " + y.text + ")", [=](const ScorePlace& at) {
                  const float a = x.value(at), b = y.value(at);
                  return at.as_duals ? (a < b ? b : a) : std::fmax(a, b);
                }};
    }
  }

  std::mt19937_64& random_;
};

}  // namespace

RandomScoreText random_score_text(std::mt19937_64& random) { return Author(random).write(); }

}  // namespace jit::testing
