#include "generator/functors/interval_meaning.h"

#include <cmath>
#include <stdexcept>

namespace jit {
namespace {

using AnyInterval = std::variant<Interval<bool>, Interval<int>, Interval<unsigned>, Interval<long long>,
                                 Interval<float>, Interval<double>>;

/// Calls f with the unbounded Interval of a type.
template <class F>
AnyInterval for_type(NumberType type, const F& f) {
  switch (type) {
    case NumberType::truth:
      return f(any<bool>());
    case NumberType::whole32:
      return f(any<int>());
    case NumberType::natural32:
      return f(any<unsigned>());
    case NumberType::whole64:
      return f(any<long long>());
    case NumberType::real32:
      return f(any<float>());
    case NumberType::real64:
      return f(any<double>());
  }
  throw std::logic_error("a type of numbers that has no intervals");
}

template <class T>
Interval<T> constant(const TextNode& node) {
  if (const double* real = std::get_if<double>(&node.number)) {
    const T number = static_cast<T>(*real);
    return std::isnan(*real) ? any<T>() : Interval<T>(number);
  }
  return static_cast<T>(std::get<std::int64_t>(node.number));
}

class Evaluation {
 public:
  Evaluation(const TextMeaning& meaning, const TextInputs& inputs, const TextElement& element)
      : inputs_(inputs), element_(element) {
    for (const TextNode& node : meaning.nodes) values_.push_back(value(node));
  }

  template <class T>
  Interval<T> result() const {
    return std::get<Interval<T>>(values_.back());
  }

 private:
  const AnyInterval& operand(const TextNode& node, int i) const {
    return values_[static_cast<std::size_t>(node.operands[static_cast<std::size_t>(i)])];
  }
  template <class T>
  Interval<T> operand(const TextNode& node, int i) const {
    return std::get<Interval<T>>(operand(node, i));
  }

  AnyInterval value(const TextNode& node) const {
    switch (node.op) {
      case TextOperator::input:
        return inputs_[static_cast<std::size_t>(node.which)];
      case TextOperator::logical_not:
        return !operand<bool>(node, 0);
      case TextOperator::logical_and:
        return operand<bool>(node, 0) && operand<bool>(node, 1);
      case TextOperator::logical_or:
        return operand<bool>(node, 0) || operand<bool>(node, 1);
      case TextOperator::less:
      case TextOperator::less_equal:
      case TextOperator::equal:
      case TextOperator::not_equal:
        return std::visit([&](const auto& x) { return AnyInterval(compared(node, x)); }, operand(node, 0));
      case TextOperator::convert:
        return std::visit(
            [&](const auto& x) {
              return for_type(node.type, [&]<class To>(Interval<To>) { return AnyInterval(convert<To>(x)); });
            },
            operand(node, 0));
      default:
        return for_type(node.type, [&]<class T>(Interval<T>) { return AnyInterval(number<T>(node)); });
    }
  }

  template <class T>
  Interval<bool> compared(const TextNode& node, Interval<T> x) const {
    const Interval<T> y = operand<T>(node, 1);
    if (node.op == TextOperator::less) return x < y;
    if (node.op == TextOperator::less_equal) return x <= y;
    return node.op == TextOperator::equal ? x == y : x != y;
  }

  // The result of an operation with the type of its operands.
  template <class T>
  Interval<T> number(const TextNode& node) const {
    if (node.op == TextOperator::constant) return constant<T>(node);
    if (node.op == TextOperator::load) return loaded<T>(node);
    if (node.op == TextOperator::unknown) return any<T>();
    if (node.op == TextOperator::choose)
      return choose(operand<bool>(node, 0), operand<T>(node, 1), operand<T>(node, 2));
    if constexpr (!interval::same<T, bool>) {
      const Interval<T> x = operand<T>(node, 0);
      if (node.op == TextOperator::negative) return -x;
      if (node.op == TextOperator::magnitude) return magnitude(x);
      if constexpr (!NumberRange<T>::is_real) {
        if (node.op == TextOperator::bit_not) return ~x;
        if (node.op == TextOperator::shift_left) return x << operand<int>(node, 1);
        if (node.op == TextOperator::shift_right) return x >> operand<int>(node, 1);
      }
      return of_two(node, x, operand<T>(node, 1));
    }
    throw std::logic_error("a truth that nothing makes");
  }

  template <class T>
  static Interval<T> of_two(const TextNode& node, Interval<T> x, Interval<T> y) {
    switch (node.op) {
      case TextOperator::add:
        return x + y;
      case TextOperator::subtract:
        return x - y;
      case TextOperator::multiply:
        return x * y;
      case TextOperator::divide:
        return x / y;
      case TextOperator::least:
        return least(x, y);
      case TextOperator::most:
        return most(x, y);
      default:
        break;
    }
    if constexpr (!NumberRange<T>::is_real) {
      if (node.op == TextOperator::remainder) return x % y;
      if (node.op == TextOperator::bit_and) return x & y;
      if (node.op == TextOperator::bit_or) return x | y;
      if (node.op == TextOperator::bit_xor) return x ^ y;
    }
    throw std::logic_error("an operator that has no intervals");
  }

  template <class T>
  Interval<T> loaded(const TextNode& node) const {
    const Interval<long long> index = operand<long long>(node, 0);
    if (!element_ || !index.is_exact() || !operand<bool>(node, 1).low) return any<T>();
    const double read = element_(node.which, index.low);
    return std::isnan(read) ? any<T>() : Interval<T>(static_cast<T>(read));
  }

  const TextInputs& inputs_;
  const TextElement& element_;
  std::vector<AnyInterval> values_;
};

}  // namespace

Interval<bool> kept(const TextMeaning& meaning, const TextInputs& inputs, const TextElement& element) {
  return Evaluation(meaning, inputs, element).result<bool>();
}

Interval<long long> whole_number(const TextMeaning& meaning, const TextInputs& inputs) {
  const TextElement nothing;
  return Evaluation(meaning, inputs, nothing).result<long long>();
}

}  // namespace jit
