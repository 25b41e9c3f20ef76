#include "generator/functors/meaning_source.h"

#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace jit {
namespace {

std::string_view sign(TextOperator op) {
  switch (op) {
    case TextOperator::negative:
    case TextOperator::subtract:
      return "-";
    case TextOperator::bit_not:
      return "~";
    case TextOperator::logical_not:
      return "!";
    case TextOperator::add:
      return "+";
    case TextOperator::multiply:
      return "*";
    case TextOperator::divide:
      return "/";
    case TextOperator::remainder:
      return "%";
    case TextOperator::shift_left:
      return "<<";
    case TextOperator::shift_right:
      return ">>";
    case TextOperator::bit_and:
      return "&";
    case TextOperator::bit_or:
      return "|";
    case TextOperator::bit_xor:
      return "^";
    case TextOperator::logical_and:
      return "&&";
    case TextOperator::logical_or:
      return "||";
    case TextOperator::less:
      return "<";
    case TextOperator::less_equal:
      return "<=";
    case TextOperator::equal:
      return "==";
    case TextOperator::not_equal:
      return "!=";
    default:
      return "";
  }
}

// Number types of generated code, of templates/problem/interval.cuh or exact.cuh, with the same operations.
enum class Numbers { intervals, exact };

std::string_view name_of(Numbers numbers) { return numbers == Numbers::intervals ? "Interval" : "Exact"; }

// An integer constant.
std::string whole_constant(const TextNode& node, std::string_view numbers) {
  const std::int64_t whole = std::get<std::int64_t>(node.number);
  if (node.type == NumberType::truth) return fmt::format("{}<bool>({})", numbers, whole != 0);
  if (node.type == NumberType::natural32) return fmt::format("{}<unsigned>({}u)", numbers, whole);
  if (node.type == NumberType::whole64) {
    // The lowest number has no literal.
    if (whole == std::numeric_limits<std::int64_t>::min())
      return fmt::format("{}<long long>({}ll - 1)", numbers, whole + 1);
    return fmt::format("{}<long long>({}ll)", numbers, whole);
  }
  return fmt::format("{}<int>({})", numbers, whole);
}

std::string constant(const TextNode& node, Numbers numbers) {
  const std::string type(to_string(node.type));
  if (const double* real = std::get_if<double>(&node.number)) {
    const double number = node.type == NumberType::real32 ? static_cast<float>(*real) : *real;
    if (std::isnan(number)) return fmt::format("any<{}>()", type);
    if (std::isinf(number))
      return fmt::format("{}Interval<{}>(NumberRange<{}>::highest)", number < 0 ? "-" : "", type, type);
    return fmt::format("Interval<{}>({:a}{})", type, number, node.type == NumberType::real32 ? "f" : "");
  }
  return whole_constant(node, name_of(numbers));
}

// Nodes with a single use are inlined.
class Lines {
 public:
  Lines(const TextMeaning& meaning, Numbers numbers, const std::string& indent)
      : numbers_(numbers), uses_(meaning.nodes.size()) {
    for (const TextNode& node : meaning.nodes)
      for (const int operand : node.operands)
        if (operand >= 0) ++uses_[static_cast<std::size_t>(operand)];
    for (std::size_t i = 0; i < meaning.nodes.size(); ++i) {
      const TextNode& node = meaning.nodes[i];
      std::string text = expression(node);
      const bool is_short = node.op == TextOperator::constant || node.op == TextOperator::input ||
                            node.op == TextOperator::unknown || node.op == TextOperator::is_asked;
      if (uses_[i] > 1 && !is_short) {
        lines_ += fmt::format("{}const {}<{}> x{} = {};\n", indent, name_of(numbers_), to_string(node.type),
                              i, bare(text));
        text = fmt::format("x{}", i);
      }
      texts_.push_back(std::move(text));
    }
    lines_ += fmt::format("{}return {};\n", indent, bare(texts_.back()));
  }

  const std::string& lines() const { return lines_; }

 private:
  // The expression without its outer parentheses.
  static std::string bare(const std::string& text) {
    return text.starts_with('(') ? text.substr(1, text.size() - 2) : text;
  }

  const std::string& operand(const TextNode& node, std::size_t i) const {
    return texts_[static_cast<std::size_t>(node.operands[i])];
  }

  std::string expression(const TextNode& node) const {
    const std::string_view type = to_string(node.type);
    switch (node.op) {
      case TextOperator::constant:
        return constant(node, numbers_);
      case TextOperator::input: {
        const std::string_view name = text_inputs()[static_cast<std::size_t>(node.which)];
        const bool is_interval =
            numbers_ == Numbers::intervals && node.which < static_cast<int>(TextInput::b);
        return is_interval ? std::string(name) : fmt::format("{}<int>({})", name_of(numbers_), name);
      }
      case TextOperator::load:
        return fmt::format("element<{}>({}, {}, tensor{})", type, bare(operand(node, 1)),
                           bare(operand(node, 0)), node.which);
      case TextOperator::is_asked:
        return "Exact<bool>(is_asked)";
      case TextOperator::unknown:
        return fmt::format("any<{}>()", type);
      case TextOperator::convert:
        return fmt::format("convert<{}>({})", type, bare(operand(node, 0)));
      case TextOperator::choose:
        return fmt::format("choose({}, {}, {})", bare(operand(node, 0)), bare(operand(node, 1)),
                           bare(operand(node, 2)));
      case TextOperator::least:
        return fmt::format("least({}, {})", bare(operand(node, 0)), bare(operand(node, 1)));
      case TextOperator::most:
        return fmt::format("most({}, {})", bare(operand(node, 0)), bare(operand(node, 1)));
      case TextOperator::magnitude:
        return fmt::format("magnitude({})", bare(operand(node, 0)));
      case TextOperator::negative:
      case TextOperator::bit_not:
      case TextOperator::logical_not:
        // "--" would be a decrement.
        if (operand(node, 0).starts_with('-')) return fmt::format("{}({})", sign(node.op), operand(node, 0));
        return fmt::format("{}{}", sign(node.op), operand(node, 0));
      default:
        return fmt::format("({} {} {})", operand(node, 0), sign(node.op), operand(node, 1));
    }
  }

  Numbers numbers_;
  std::vector<int> uses_;
  std::vector<std::string> texts_;
  std::string lines_;
};

}  // namespace

std::string interval_source(const TextMeaning& meaning, const std::string& indent) {
  return Lines(meaning, Numbers::intervals, indent).lines();
}

std::string exact_source(const TextMeaning& meaning, const std::string& indent) {
  return Lines(meaning, Numbers::exact, indent).lines();
}

}  // namespace jit
