#include "generator/functors/mask_parts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "generator/functors/node_list.h"

namespace jit {
namespace {

using Kind = MaskPart::Kind;

// Limits beyond which compiles take longer than kernels save.
constexpr int most_leaves = 16;
constexpr std::size_t most_parts = 128;
constexpr std::size_t most_nodes_to_part = 512;
constexpr int no_part = -1;

constexpr std::int64_t most_slope = 1 << 20;

/// A number linear in q and k, plus a bounded term that is independent of both.
struct Line {
  std::int64_t by_q = 0, by_k = 0;
  std::int64_t low = 0, high = 0;  ///< bounds of the independent term

  bool is_uniform() const { return by_q == 0 && by_k == 0; }
  bool is_distance() const { return by_q != 0 && by_q == -by_k; }
};

struct Bounds {
  std::int64_t low, high;
};

Bounds bounds_of_type(NumberType type) {
  if (type == NumberType::whole64)
    return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
}

// x + factor · y.
std::optional<Line> sum(const std::optional<Line>& x, const std::optional<Line>& y, std::int64_t factor) {
  if (!x || !y) return {};
  Line made = {.by_q = x->by_q + y->by_q * factor, .by_k = x->by_k + y->by_k * factor};
  if (std::abs(made.by_q) > most_slope || std::abs(made.by_k) > most_slope) return {};
  Bounds added{};
  if (__builtin_mul_overflow(factor < 0 ? y->high : y->low, factor, &added.low) ||
      __builtin_mul_overflow(factor < 0 ? y->low : y->high, factor, &added.high) ||
      __builtin_add_overflow(x->low, added.low, &made.low) ||
      __builtin_add_overflow(x->high, added.high, &made.high))
    return {};
  return made;
}

// The line, if a number defined at (q, k) is defined at earlier ones with the same distance, too: distances
// are evaluated at their first query and key, where overflow would be undefined in C++, and a condition in
// the text might prevent it.
std::optional<Line> within_type(std::optional<Line> line, NumberType type) {
  if (!line) return {};
  const Bounds bounds = bounds_of_type(type);
  const bool rises = line->by_q >= 0 && line->by_k >= 0, falls = line->by_q <= 0 && line->by_k <= 0;
  if (line->is_distance()) return line;
  if (!rises && !falls) return {};
  if (!falls && line->low < bounds.low) return {};
  if (!rises && line->high > bounds.high) return {};
  line->low = std::max(line->low, bounds.low), line->high = std::min(line->high, bounds.high);
  return line;
}

/// Dependence of a node on query and key.
struct Dependence {
  bool is_followed = true;  ///< computed without real numbers
  std::int64_t q = 0;       ///< granularity of its dependence on q; 0: independent
  std::int64_t k = 0;
  /// The step if the value is exactly q / step or k / step, rounded down; else 0.
  std::int64_t step = 0;
  std::optional<Line> line = {};  ///< for whole numbers
  bool follows_from_distance = false;
  std::vector<int> asked = {};  ///< conditions of the text under which it reads elements

  bool is_uniform() const { return q == 0 && k == 0; }
};

class Decomposition {
 public:
  explicit Decomposition(const TextMeaning& source) : source_(source) {
    for (std::size_t i = 0; i < source.nodes.size(); ++i) {
      same_.push_back(first_same(static_cast<int>(i)));
      known_.push_back(dependence(source.nodes[i]));
    }
  }

  std::shared_ptr<const MaskParts> parts() {
    const int whole = part(static_cast<int>(source_.nodes.size()) - 1);
    if (whole < 0 || is_too_much()) return nullptr;
    if (std::all_of(parts_.begin(), parts_.end(), [](const MaskPart& p) { return p.kind == Kind::score; }))
      return nullptr;
    return std::make_shared<const MaskParts>(MaskParts{std::move(parts_)});
  }

 private:
  const TextNode& node(int i) const { return source_.nodes[static_cast<std::size_t>(i)]; }
  const Dependence& known(int i) const { return known_[static_cast<std::size_t>(i)]; }

  // The first identical node. Not for real numbers, which may be NaN.
  int first_same(int i) {
    if (is_real(node(i).type)) return i;
    TextNode key = node(i);
    for (int& operand : key.operands)
      if (operand >= 0) operand = same_[static_cast<std::size_t>(operand)];
    const auto made = std::tuple(key.op, key.type, key.operands, key.number, key.which);
    return nodes_.try_emplace(made, i).first->second;
  }

  std::optional<std::int64_t> constant(int i) const {
    if (node(i).op != TextOperator::constant) return {};
    const std::int64_t* const whole = std::get_if<std::int64_t>(&node(i).number);
    return whole == nullptr ? std::nullopt : std::optional(*whole);
  }

  // Dependence.

  Dependence dependence(const TextNode& of) const {
    if (of.op == TextOperator::input) return input(of);
    Dependence result;
    result.is_followed = !is_real(of.type) && of.op != TextOperator::score && of.op != TextOperator::unknown;
    bool has_distance = false, has_other = false;
    // The value does not depend on whether an element is read: if not, any value is allowed.
    const std::size_t operands = of.op == TextOperator::load ? 1 : of.operands.size();
    for (std::size_t i = 0; i < operands && of.operands[i] >= 0; ++i) {
      const Dependence& x = known(of.operands[i]);
      result.is_followed &= x.is_followed;
      result.q = std::gcd(result.q, x.q);
      result.k = std::gcd(result.k, x.k);
      result.asked.insert(result.asked.end(), x.asked.begin(), x.asked.end());
      has_distance |= x.follows_from_distance;
      has_other |= !x.is_uniform() && !x.follows_from_distance;
    }
    if (of.op == TextOperator::load) {
      result.is_followed &= known(of.operands[1]).is_followed;
      if (!constant(of.operands[1])) result.asked.push_back(same_[static_cast<std::size_t>(of.operands[1])]);
    }
    std::sort(result.asked.begin(), result.asked.end());
    result.asked.erase(std::unique(result.asked.begin(), result.asked.end()), result.asked.end());
    result.step = step(of);
    if (result.step > 0) (result.q > 0 ? result.q : result.k) = result.step;
    result.line = line(of);
    const std::optional<Line> difference =
        is_comparison(of.op) ? sum(own_line(of.operands[0]), own_line(of.operands[1]), -1) : result.line;
    result.follows_from_distance = difference ? difference->is_distance() : has_distance && !has_other;
    return result;
  }

  static Dependence input(const TextNode& of) {
    if (of.which == static_cast<int>(TextInput::q)) return {.q = 1, .step = 1, .line = Line{.by_q = 1}};
    if (of.which == static_cast<int>(TextInput::k)) return {.k = 1, .step = 1, .line = Line{.by_k = 1}};
    const bool is_length = of.which == static_cast<int>(TextInput::seqlen_q) ||
                           of.which == static_cast<int>(TextInput::seqlen_kv);
    return {.line = Line{.high = is_length ? max_seqlen : bounds_of_type(of.type).high}};
  }

  std::int64_t step(const TextNode& of) const {
    if (of.op != TextOperator::divide && of.op != TextOperator::shift_right) return 0;
    const std::int64_t before = known(of.operands[0]).step, by = constant(of.operands[1]).value_or(0);
    constexpr std::int64_t most = 1 << 30;
    if (of.type != NumberType::whole32 || before == 0 || by <= 0) return 0;
    if (of.op == TextOperator::divide) return by <= most / before ? before * by : 0;
    return by < 30 && before <= most >> by ? before << by : 0;
  }

  static bool is_comparison(TextOperator op) {
    return op == TextOperator::less || op == TextOperator::less_equal || op == TextOperator::equal ||
           op == TextOperator::not_equal;
  }

  // The line of a number that depends only on q, on k, or on their distance.
  std::optional<Line> own_line(int i) const {
    const std::optional<Line>& line = known(i).line;
    const bool is_own = line && (line->by_q == 0 || line->by_k == 0 || line->is_distance());
    return is_own ? line : std::nullopt;
  }

  std::optional<Line> line(const TextNode& of) const {
    if (of.type != NumberType::whole32 && of.type != NumberType::whole64) return {};
    if (of.op == TextOperator::constant) {
      const std::int64_t number = std::get<std::int64_t>(of.number);
      return Line{.low = number, .high = number};
    }
    const bool is_uniform = std::all_of(of.operands.begin(), of.operands.end(),
                                        [&](int i) { return i < 0 || known(i).is_uniform(); });
    const Bounds bounds = bounds_of_type(of.type);
    const std::optional<Line> made = within_type(made_line(of), of.type);
    if (made || !is_uniform) return made;
    return Line{.low = bounds.low, .high = bounds.high};
  }

  std::optional<Line> made_line(const TextNode& of) const {
    const auto operand = [&](std::size_t i) { return known(of.operands[i]).line; };
    switch (of.op) {
      case TextOperator::convert:
        return of.type == NumberType::whole64 ? own_line(of.operands[0]) : std::nullopt;
      case TextOperator::add:
        return sum(operand(0), operand(1), 1);
      case TextOperator::subtract:
        return sum(operand(0), operand(1), -1);
      case TextOperator::negative:
        return sum(Line{}, operand(0), -1);
      case TextOperator::multiply:
        for (const std::size_t i : {0, 1})
          if (const std::optional<std::int64_t> by = constant(of.operands[i]);
              by && std::abs(*by) <= most_slope)
            return sum(Line{}, operand(1 - i), *by);
        return {};
      default:
        return {};
    }
  }

  // Parts.

  // The index of the part for a condition of the text.
  int part(int truth) {
    truth = same_[static_cast<std::size_t>(truth)];
    const auto found = places_.find(truth);
    if (found != places_.end()) return found->second;
    const int place = is_too_much() ? no_part : made(truth);
    places_[truth] = place;
    return place;
  }

  bool is_too_much() const { return leaves_ > most_leaves || parts_.size() > most_parts; }

  int add(MaskPart part) {
    leaves_ += part.kind <= Kind::score;
    parts_.push_back(std::move(part));
    return static_cast<int>(parts_.size()) - 1;
  }

  // Whether a condition can be a part of this kind, if its reads are allowed.
  static bool is_of_kind(const Dependence& of, Kind kind) {
    switch (kind) {
      case Kind::query:
        return of.k == 0;
      case Kind::key:
        return of.q == 0;
      case Kind::distance:
        return of.follows_from_distance || of.is_uniform();
      default:
        return of.q % 8 == 0 && of.k % 16 == 0;
    }
  }

  int made(int truth) {
    const Dependence& of = known(truth);
    // Shares a part with the negated condition, which is often used as well.
    if (!of.is_followed || node(truth).op == TextOperator::logical_not) return joint(truth);
    for (const Kind kind : {Kind::query, Kind::distance, Kind::range, Kind::key, Kind::block}) {
      const int found = kind == Kind::range    ? ranged(truth)
                        : is_of_kind(of, kind) ? leaf(kind, truth)
                                               : no_part;
      if (found != no_part) return found;
    }
    return joint(truth);
  }

  // Combines the parts of a condition's operands; if there are none, the condition is evaluated per score.
  int joint(int truth) {
    const auto [a, b, c] = node(truth).operands;
    switch (node(truth).op) {
      case TextOperator::logical_not:
        return joined(Kind::inverse, part(a));
      case TextOperator::logical_and:
      case TextOperator::logical_or: {
        const int x = part(a), y = part(b);
        return joined(node(truth).op == TextOperator::logical_and ? Kind::both : Kind::either, x, y);
      }
      case TextOperator::choose: {
        const int condition = part(a), x = joined(Kind::both, condition, part(b));
        const int other = joined(Kind::inverse, condition), y = joined(Kind::both, other, part(c));
        return joined(Kind::either, x, y);
      }
      default:
        return known(truth).is_followed ? add({.kind = Kind::score, .meaning = meaning(truth, true)})
                                        : no_part;
    }
  }

  int joined(Kind kind, int a, int b = no_part) {
    if (a < 0 || (kind != Kind::inverse && b < 0)) return no_part;
    return add({.kind = kind, .a = a, .b = b});
  }

  int ranged(int truth) {
    const std::optional<TextKeys> keys = text_keys(meaning(truth, true));
    if (!keys) return no_part;
    const int range = add({.kind = Kind::range, .range = keys->range});
    return keys->are_left_out ? joined(Kind::inverse, range) : range;
  }

  // Adds a part; conditions of its reads become other parts unless they have the same dependence.
  int leaf(Kind kind, int truth) {
    const std::vector<int>& reads = known(truth).asked;
    const bool knows_reads = std::all_of(reads.begin(), reads.end(), [&](int i) {
      return known(i).asked.empty() && is_of_kind(known(i), kind);
    });
    if (knows_reads) return add({.kind = kind, .meaning = meaning(truth, true)});
    if (reads.size() > 1 || kind == Kind::distance) return no_part;
    const int asked = part(reads.front());
    return asked < 0 ? no_part : add({.kind = kind, .meaning = meaning(truth, false), .asked = asked});
  }

  // The meaning of a condition; `knows_reads`: its reads have their own conditions.
  TextMeaning meaning(int truth, bool knows_reads) const {
    NodeList list;
    std::vector<int> copies(source_.nodes.size(), -1);
    std::vector<bool> is_needed(source_.nodes.size());
    is_needed[static_cast<std::size_t>(truth)] = true;
    const auto operands_of = [&](const TextNode& of) {
      std::array<int, 3> operands = of.operands;
      if (of.op == TextOperator::load && !knows_reads && !constant(operands[1])) operands[1] = -1;
      return operands;
    };
    for (int i = truth; i >= 0; --i) {
      if (!is_needed[static_cast<std::size_t>(i)]) continue;
      for (const int operand : operands_of(node(i)))
        if (operand >= 0) is_needed[static_cast<std::size_t>(operand)] = true;
    }
    for (int i = 0; i <= truth; ++i) {
      if (!is_needed[static_cast<std::size_t>(i)]) continue;
      const TextNode& of = node(i);
      std::array<int, 3> operands = operands_of(of);
      const bool asks = of.op == TextOperator::load && operands[1] < 0;
      for (int& operand : operands)
        if (operand >= 0) operand = copies[static_cast<std::size_t>(operand)];
      if (asks) operands[1] = list.is_asked();
      copies[static_cast<std::size_t>(i)] = list.copy(of, operands);
    }
    return list.meaning(copies[static_cast<std::size_t>(truth)]);
  }

  // The key of a node: its whole content.
  using Made =
      std::tuple<TextOperator, NumberType, std::array<int, 3>, std::variant<std::int64_t, double>, int>;

  const TextMeaning& source_;
  std::map<Made, int> nodes_;
  std::vector<int> same_;  // by node: the first identical one
  std::vector<Dependence> known_;
  std::vector<MaskPart> parts_;
  int leaves_ = 0;
  std::map<int, int> places_;  // indices of parts, by condition
};

}  // namespace

std::shared_ptr<const MaskParts> mask_parts(const FunctorText& text) {
  const std::variant<TextMeaning, NotFollowed> meaning = mask_meaning(text);
  const TextMeaning* const followed = std::get_if<TextMeaning>(&meaning);
  if (followed == nullptr || followed->nodes.size() > most_nodes_to_part) return nullptr;
  return Decomposition(*followed).parts();
}

}  // namespace jit
