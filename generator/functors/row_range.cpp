#include "generator/functors/row_range.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "generator/functors/node_list.h"

namespace jit {
namespace {

// The numbers just beyond whole32.
constexpr std::int64_t above = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1, under = -above - 1;
constexpr std::int64_t far = std::int64_t{1} << 40;  // beyond all keys

// Limit of recursion from numbers to keys, which doubles with each nested magnitude.
constexpr int most_steps = 1000;

/// Analysis result of a text's node, for one query.
struct Fact {
  enum class Kind {
    unknown,
    uniform,  ///< the same for all keys
    number,   ///< monotonic in the key, used once; of type whole32, or converted from it
    keys,     ///< a condition that holds for a range of keys
    gap,      ///< a condition that holds outside of a range of keys
  };
  Kind kind = Kind::unknown;
  int node = -1;   ///< index in the list, if uniform
  int begin = -1;  ///< range of keys, or of excluded ones: indices in the list; −1: unbounded
  int end = -1;
};

/// A number for comparisons: a node of type whole64, or −1 for none, plus an offset.
struct Bound {
  int node;
  std::int64_t more;
  std::int64_t low;  ///< smallest and largest possible value
  std::int64_t high;
};

// Numbers that depend on the key are whole32, whose overflow is undefined in C++. So bounds are computed in
// whole64, and clamped to whole32's range if products could overflow.
class RowDerivation {
 public:
  explicit RowDerivation(const TextMeaning& source) : source_(source) {
    for (const TextNode& node : source.nodes) facts_.push_back(fact(node));
  }

  std::shared_ptr<const TextRowRange> range() {
    const Fact result = as_keys(facts_.back());
    return result.kind == Fact::Kind::keys ? std::make_shared<const TextRowRange>(range_of(result)) : nullptr;
  }

  std::optional<TextKeys> keys() const {
    const Fact& result = facts_.back();
    if (result.kind != Fact::Kind::keys && result.kind != Fact::Kind::gap) return {};
    return TextKeys{.range = range_of(result), .are_left_out = result.kind == Fact::Kind::gap};
  }

 private:
  using Kind = Fact::Kind;

  TextRowRange range_of(const Fact& keys) const {
    TextRowRange range;
    if (keys.begin >= 0) range.begin = nodes_.meaning(keys.begin);
    if (keys.end >= 0) range.end = nodes_.meaning(keys.end);
    return range;
  }

  const Fact& operand(const TextNode& node, std::size_t i) const {
    return facts_[static_cast<std::size_t>(node.operands[i])];
  }
  const TextNode& source(int i) const { return source_.nodes[static_cast<std::size_t>(i)]; }
  const Fact& known(int i) const { return facts_[static_cast<std::size_t>(i)]; }

  Fact fact(const TextNode& node) {
    if (is_real(node.type)) return {};
    switch (node.op) {
      case TextOperator::score:
      case TextOperator::unknown:
        return {};
      case TextOperator::input:
        if (node.which == static_cast<int>(TextInput::k)) return {.kind = Kind::number};
        break;
      case TextOperator::load:
        return loaded(node);
      case TextOperator::logical_not:
        return negated(operand(node, 0));
      case TextOperator::logical_and:
        return both(operand(node, 0), operand(node, 1));
      case TextOperator::logical_or:
        return either(operand(node, 0), operand(node, 1));
      case TextOperator::choose:
        if (node.type == NumberType::truth)
          return chosen(operand(node, 0), operand(node, 1), operand(node, 2));
        break;
      case TextOperator::less:
      case TextOperator::less_equal:
      case TextOperator::equal:
      case TextOperator::not_equal:
        if (depends_on_key(node)) return compared(node);
        break;
      default:
        if (is_number_of_key(node)) return {.kind = Kind::number};
        break;
    }
    return uniform(node);
  }

  bool depends_on_key(const TextNode& node) const {
    return std::any_of(node.operands.begin(), node.operands.end(),
                       [&](int i) { return i >= 0 && known(i).kind != Kind::uniform; });
  }

  // A node is uniform if all its operands are.
  Fact uniform(const TextNode& node) {
    if (depends_on_key(node)) return {};
    std::array<int, 3> operands = node.operands;
    for (int& i : operands)
      if (i >= 0) i = known(i).node;
    return {.kind = Kind::uniform, .node = nodes_.copy(node, operands)};
  }

  // Sufficient if some key reads it: for others, the text's result does not depend on the number.
  Fact loaded(const TextNode& node) {
    const Fact &index = operand(node, 0), &reads = operand(node, 1);
    if (index.kind != Kind::uniform || (reads.kind != Kind::uniform && reads.kind != Kind::keys)) return {};
    const int is_read = reads.kind == Kind::uniform ? reads.node : is_some_key(reads);
    return {.kind = Kind::uniform, .node = nodes_.copy(node, {index.node, is_read, -1})};
  }

  int is_some_key(const Fact& keys) {
    const int seqlen_kv = nodes_.convert(nodes_.input(TextInput::seqlen_kv), NumberType::whole64);
    const int first = keys.begin < 0 ? whole(0) : most(keys.begin, whole(0));
    const int end = keys.end < 0 ? seqlen_kv : least(keys.end, seqlen_kv);
    return nodes_.binary(TextOperator::less, first, end);
  }

  // Truths.

  static bool is_truth(const Fact& x) { return x.kind != Kind::unknown && x.kind != Kind::number; }

  // Converts a uniform condition to a range of all keys or of none.
  Fact as_keys(const Fact& truth) {
    if (truth.kind != Kind::uniform) return truth;
    return {.kind = Kind::keys, .begin = nodes_.choose(truth.node, whole(-far), whole(far))};
  }

  Fact negated(const Fact& x) {
    if (x.kind == Kind::uniform) return {.kind = Kind::uniform, .node = nodes_.logical_not(x.node)};
    if (x.kind == Kind::gap) return {.kind = Kind::keys, .begin = x.begin, .end = x.end};
    if (x.kind != Kind::keys) return {};
    const bool has_both_ends = x.begin >= 0 && x.end >= 0;
    if (has_both_ends) return {.kind = Kind::gap, .begin = x.begin, .end = x.end};
    return {.kind = Kind::keys, .begin = x.end, .end = x.begin};
  }

  Fact both(const Fact& a, const Fact& b) {
    if (!is_truth(a) || !is_truth(b)) return {};
    if (a.kind == Kind::uniform && b.kind == Kind::uniform)
      return {.kind = Kind::uniform, .node = nodes_.binary(TextOperator::logical_and, a.node, b.node)};
    if (a.kind == Kind::uniform) return where(a.node, b);
    if (b.kind == Kind::uniform) return where(b.node, a);
    if (a.kind == Kind::gap || b.kind == Kind::gap) return {};
    Fact keys = a;
    if (b.begin >= 0) keys.begin = a.begin < 0 ? b.begin : most(a.begin, b.begin);
    if (b.end >= 0) keys.end = a.end < 0 ? b.end : least(a.end, b.end);
    return keys;
  }
  Fact either(const Fact& a, const Fact& b) {
    if (a.kind == Kind::uniform && b.kind == Kind::uniform)
      return {.kind = Kind::uniform, .node = nodes_.binary(TextOperator::logical_or, a.node, b.node)};
    return negated(both(negated(a), negated(b)));
  }

  // The conjunction with a uniform condition. Without it, a gap covers all keys.
  Fact where(int condition, Fact x) {
    if (x.kind == Kind::gap) {
      x.begin = nodes_.choose(condition, x.begin, whole(-far));
      x.end = nodes_.choose(condition, x.end, whole(far));
    } else if (x.begin >= 0) {
      x.begin = nodes_.choose(condition, x.begin, whole(far));
    } else {
      x.end = nodes_.choose(condition, x.end, whole(-far));
    }
    return x;
  }

  Fact chosen(const Fact& condition, const Fact& a, const Fact& b) {
    if (condition.kind != Kind::uniform) return either(both(condition, a), both(negated(condition), b));
    if (!is_truth(a) || !is_truth(b) || a.kind == Kind::gap || b.kind == Kind::gap) return {};
    if (a.kind == Kind::uniform && b.kind == Kind::uniform)
      return {.kind = Kind::uniform, .node = nodes_.choose(condition.node, a.node, b.node)};
    const Fact x = as_keys(a), y = as_keys(b);
    const auto side = [&](int of_x, int of_y, std::int64_t open) {
      if (of_x < 0 && of_y < 0) return -1;
      return nodes_.choose(condition.node, of_x < 0 ? whole(open) : of_x, of_y < 0 ? whole(open) : of_y);
    };
    return {.kind = Kind::keys, .begin = side(x.begin, y.begin, -far), .end = side(x.end, y.end, far)};
  }

  // Numbers.

  // Whether a node uses the key once, in a monotonic operation.
  bool is_number_of_key(const TextNode& node) const {
    const auto is_key = [&](std::size_t i) { return operand(node, i).kind == Kind::number; };
    const auto is_uniform = [&](std::size_t i) { return operand(node, i).kind == Kind::uniform; };
    if (node.op == TextOperator::convert) return node.type == NumberType::whole64 && is_key(0);
    if (node.type != NumberType::whole32) return false;
    switch (node.op) {
      case TextOperator::negative:
      case TextOperator::magnitude:
        return is_key(0);
      case TextOperator::add:
      case TextOperator::subtract:
        return (is_key(0) && is_uniform(1)) || (is_uniform(0) && is_key(1));
      case TextOperator::multiply:
        return (is_key(0) && factor(node, 1) != 0) || (is_key(1) && factor(node, 0) != 0);
      case TextOperator::divide:
        return is_key(0) && factor(node, 1) != 0;
      case TextOperator::shift_right: {
        const std::int64_t by = constant(node.operands[1]).value_or(-1);
        return is_key(0) && by >= 0 && by < 32;
      }
      default:
        return false;
    }
  }

  // The constant at a node, or nothing. Negative ones are a sign and a constant, as in C++.
  std::optional<std::int64_t> constant(int i) const {
    const bool has_sign = source(i).op == TextOperator::negative;
    const TextNode& node = has_sign ? source(source(i).operands[0]) : source(i);
    if (node.op != TextOperator::constant) return {};
    const std::int64_t number = std::get<std::int64_t>(node.number);
    return has_sign ? -number : number;
  }
  // 0 if the operand is no constant.
  std::int64_t factor(const TextNode& node, std::size_t i) const {
    return constant(node.operands[i]).value_or(0);
  }

  Fact compared(const TextNode& node) {
    const int a = node.operands[0], b = node.operands[1];
    const bool is_first = known(a).kind == Kind::number;
    const int key = is_first ? a : b, other = is_first ? b : a;
    if (known(key).kind != Kind::number || known(other).kind != Kind::uniform) return {};
    const Bound bound = upcast(other);
    switch (node.op) {
      case TextOperator::less:
        return is_first ? below(key, bound) : at_least(key, moved(bound, 1));
      case TextOperator::less_equal:
        return is_first ? below(key, moved(bound, 1)) : at_least(key, bound);
      case TextOperator::equal:
        return both(at_least(key, bound), below(key, moved(bound, 1)));
      default:
        return negated(both(at_least(key, bound), below(key, moved(bound, 1))));
    }
  }

  // The keys for which a number of the text is at least the bound.
  Fact at_least(int of_key, const Bound& bound) {
    if (++steps_ > most_steps) return {};
    const TextNode& node = source(of_key);
    const int a = node.operands[0], b = node.operands[1];
    switch (node.op) {
      case TextOperator::input:
        return {.kind = Kind::keys, .begin = number(bound)};
      case TextOperator::convert:
        return at_least(a, bound);
      case TextOperator::negative:
        return below(a, moved(opposite(bound), 1));
      case TextOperator::add:
        return known(a).kind == Kind::number ? at_least(a, difference(bound, upcast(b)))
                                             : at_least(b, difference(bound, upcast(a)));
      case TextOperator::subtract:
        return known(a).kind == Kind::number ? at_least(a, sum(bound, upcast(b)))
                                             : below(b, moved(difference(upcast(a), bound), 1));
      case TextOperator::multiply:
        return known(a).kind == Kind::number ? product_at_least(a, factor(node, 1), bound)
                                             : product_at_least(b, factor(node, 0), bound);
      case TextOperator::divide:
        return quotient_at_least(a, factor(node, 1), bound);
      case TextOperator::shift_right:
        return at_least(a, times(cut(bound), std::int64_t{1} << factor(node, 1)));
      default:  // a magnitude
        return negated(both(at_least(a, moved(opposite(bound), 1)), below(a, bound)));
    }
  }

  Fact below(int of_key, const Bound& bound) { return negated(at_least(of_key, bound)); }

  Fact product_at_least(int of_key, std::int64_t factor, const Bound& bound) {
    if (factor > 0) return at_least(of_key, quotient_above(bound, factor));
    return below(of_key, quotient_above(moved(opposite(bound), 1), -factor));
  }

  // Division truncates toward 0.
  Fact quotient_at_least(int of_key, std::int64_t divisor, const Bound& bound) {
    if (divisor < 0) return negated(quotient_at_least(of_key, -divisor, moved(opposite(bound), 1)));
    const Bound quotient = cut(bound);
    const Bound positive = times(quotient, divisor), other = moved(times(moved(quotient, -1), divisor), 1);
    const int is_positive = nodes_.binary(TextOperator::less, whole(0), number(quotient));
    return at_least(of_key, bound_of(nodes_.choose(is_positive, number(positive), number(other)),
                                     std::min(positive.low, other.low), std::max(positive.high, other.high)));
  }

  // Bounds.

  int whole(std::int64_t number) { return nodes_.whole(NumberType::whole64, number); }
  int least(int a, int b) { return nodes_.call(TextOperator::least, NumberType::whole64, a, b); }
  int most(int a, int b) { return nodes_.call(TextOperator::most, NumberType::whole64, a, b); }

  static Bound bound_of(int node, std::int64_t low, std::int64_t high) { return {node, 0, low, high}; }
  static Bound bound_of(std::int64_t known) { return {-1, known, known, known}; }

  int number(const Bound& x) {
    if (x.node < 0) return whole(x.more);
    return x.more == 0 ? x.node : nodes_.binary(TextOperator::add, x.node, whole(x.more));
  }

  // The bound of a uniform number. It is compared with (former) whole32 numbers, so larger ones are
  // equivalent.
  Bound upcast(int uniform) {
    const TextNode& node = source(uniform);
    if (const std::optional<std::int64_t> only = constant(uniform))
      return bound_of(std::clamp(*only, under, above));
    const int wide = nodes_.convert(known(uniform).node, NumberType::whole64);
    if (node.type != NumberType::whole64) return bound_of(wide, under + 1, above - 1);
    return bound_of(least(most(wide, whole(under)), whole(above)), under, above);
  }

  // Clamps a bound, with equal results of comparisons with whole32 numbers.
  Bound cut(const Bound& x) {
    Bound result = x;
    if (x.low < under) result = bound_of(most(number(result), whole(under)), under, std::max(x.high, under));
    if (x.high > above)
      result = bound_of(least(number(result), whole(above)), std::min(result.low, above), above);
    return result;
  }

  static Bound moved(const Bound& x, std::int64_t by) {
    return {x.node, x.more + by, x.low + by, x.high + by};
  }
  Bound opposite(const Bound& x) { return difference(bound_of(0), x); }
  Bound sum(const Bound& x, const Bound& y) {
    const int node = x.node < 0   ? y.node
                     : y.node < 0 ? x.node
                                  : nodes_.binary(TextOperator::add, x.node, y.node);
    return {node, x.more + y.more, x.low + y.low, x.high + y.high};
  }
  Bound difference(const Bound& x, const Bound& y) {
    const int node = y.node < 0   ? x.node
                     : x.node < 0 ? nodes_.negative(y.node)
                                  : nodes_.binary(TextOperator::subtract, x.node, y.node);
    return {node, x.more - y.more, x.low - y.high, x.high - y.low};
  }
  Bound times(const Bound& x, std::int64_t factor) {
    if (x.node < 0) return bound_of(x.more * factor);
    return bound_of(nodes_.binary(TextOperator::multiply, number(x), whole(factor)), x.low * factor,
                    x.high * factor);
  }

  // x / divisor, rounded up.
  Bound quotient_above(const Bound& x, std::int64_t divisor) {
    const int quotient = nodes_.binary(TextOperator::divide, number(x), whole(divisor));
    const int rest = nodes_.binary(TextOperator::remainder, number(x), whole(divisor));
    const int is_more = nodes_.binary(TextOperator::less, whole(0), rest);
    return bound_of(nodes_.binary(TextOperator::add, quotient, is_more), x.low / divisor,
                    x.high / divisor + 1);
  }

  const TextMeaning& source_;
  NodeList nodes_;
  std::vector<Fact> facts_;  // by node of the text
  int steps_ = 0;
};

}  // namespace

std::optional<TextKeys> text_keys(const TextMeaning& truth) { return RowDerivation(truth).keys(); }

std::shared_ptr<const TextRowRange> text_row_range(const FunctorText& text) {
  if (!text.classify.empty()) return nullptr;
  const std::variant<TextMeaning, NotFollowed> meaning = mask_meaning(text);
  const TextMeaning* const followed = std::get_if<TextMeaning>(&meaning);
  return followed == nullptr ? nullptr : RowDerivation(*followed).range();
}

}  // namespace jit
