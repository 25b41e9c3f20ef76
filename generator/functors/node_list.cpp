#include "generator/functors/node_list.h"

#include <algorithm>

namespace jit {
namespace {

bool is_logical(TextOperator op) { return op == TextOperator::logical_and || op == TextOperator::logical_or; }
bool is_shift(TextOperator op) { return op == TextOperator::shift_left || op == TextOperator::shift_right; }
bool is_comparison(TextOperator op) { return op >= TextOperator::less && op <= TextOperator::not_equal; }

// The common type of promoted operands: enumerators are ordered by C++'s preference.
NumberType common(NumberType a, NumberType b) { return std::max({a, b, NumberType::whole32}); }

}  // namespace

std::string_view to_string(NumberType type) {
  constexpr std::string_view names[] = {"bool", "int", "unsigned", "long long", "float", "double"};
  return names[static_cast<std::size_t>(type)];
}

const std::array<std::string_view, 7>& text_inputs() {
  static constexpr std::array<std::string_view, 7> names = {"q",       "k",        "b",        "h",
                                                            "heads_q", "seqlen_q", "seqlen_kv"};
  return names;
}

bool reads(const TextMeaning& meaning, TextInput input) {
  return std::any_of(meaning.nodes.begin(), meaning.nodes.end(), [&](const TextNode& node) {
    return node.op == TextOperator::input && node.which == static_cast<int>(input);
  });
}

int NodeList::add(TextNode node) {
  nodes_.push_back(node);
  return static_cast<int>(nodes_.size()) - 1;
}

int NodeList::truth(bool value) { return whole(NumberType::truth, value); }
int NodeList::whole(NumberType type, std::int64_t number) {
  return add({.op = TextOperator::constant, .type = type, .operands = {-1, -1, -1}, .number = number});
}
int NodeList::real(NumberType type, double number) {
  return add({.op = TextOperator::constant, .type = type, .operands = {-1, -1, -1}, .number = number});
}
int NodeList::input(TextInput which) {
  return add({.op = TextOperator::input,
              .type = NumberType::whole32,
              .operands = {-1, -1, -1},
              .number = std::int64_t{0},
              .which = static_cast<int>(which)});
}
int NodeList::load(int tensor, NumberType type, int index, int reads) {
  return add({.op = TextOperator::load,
              .type = type,
              .operands = {convert(index, NumberType::whole64), reads, -1},
              .number = std::int64_t{0},
              .which = tensor});
}

int NodeList::score() {
  return add({.op = TextOperator::score, .type = NumberType::real32, .operands = {-1, -1, -1}});
}
int NodeList::is_asked() {
  return add({.op = TextOperator::is_asked, .type = NumberType::truth, .operands = {-1, -1, -1}});
}
int NodeList::unknown(NumberType type) {
  return add({.op = TextOperator::unknown, .type = type, .operands = {-1, -1, -1}});
}
int NodeList::copy(TextNode node, const std::array<int, 3>& operands) {
  node.operands = operands;
  return add(node);
}

bool NodeList::is_truth(int node, bool value) const {
  const TextNode& known = nodes_[static_cast<std::size_t>(node)];
  return known.op == TextOperator::constant && known.type == NumberType::truth &&
         std::get<std::int64_t>(known.number) == std::int64_t{value};
}

int NodeList::convert(int node, NumberType to) {
  if (type(node) == to) return node;
  return add({.op = TextOperator::convert, .type = to, .operands = {node, -1, -1}});
}
int NodeList::promoted(int node) { return convert(node, common(type(node), NumberType::whole32)); }
int NodeList::negative(int node) {
  const int operand = promoted(node);
  return add({.op = TextOperator::negative, .type = type(operand), .operands = {operand, -1, -1}});
}
int NodeList::bit_not(int node) {
  const int operand = promoted(node);
  return add({.op = TextOperator::bit_not, .type = type(operand), .operands = {operand, -1, -1}});
}

int NodeList::logical_not(int node) {
  const int operand = convert(node, NumberType::truth);
  if (is_truth(operand, false)) return truth(true);
  if (is_truth(operand, true)) return truth(false);
  const TextNode& known = nodes_[static_cast<std::size_t>(operand)];
  if (known.op == TextOperator::logical_not) return known.operands[0];
  return add({.op = TextOperator::logical_not, .type = NumberType::truth, .operands = {operand, -1, -1}});
}

int NodeList::binary(TextOperator op, int a, int b) {
  if (is_logical(op)) {
    a = convert(a, NumberType::truth), b = convert(b, NumberType::truth);
    const bool neutral = op == TextOperator::logical_and;
    if (is_truth(a, neutral)) return b;
    if (is_truth(b, neutral)) return a;
    if (is_truth(a, !neutral)) return a;
    if (is_truth(b, !neutral)) return b;
    return add({.op = op, .type = NumberType::truth, .operands = {a, b, -1}});
  }
  if (is_shift(op)) {
    a = promoted(a), b = convert(b, NumberType::whole32);
    return add({.op = op, .type = type(a), .operands = {a, b, -1}});
  }
  const NumberType shared = common(type(a), type(b));
  a = convert(a, shared), b = convert(b, shared);
  return add({.op = op, .type = is_comparison(op) ? NumberType::truth : shared, .operands = {a, b, -1}});
}

int NodeList::choose(int condition, int a, int b) {
  condition = convert(condition, NumberType::truth);
  if (a == b || is_truth(condition, true)) return a;
  if (is_truth(condition, false)) return b;
  if (type(a) != type(b)) {
    const NumberType shared = common(type(a), type(b));
    a = convert(a, shared), b = convert(b, shared);
  }
  if (is_truth(a, true)) return binary(TextOperator::logical_or, condition, b);
  if (is_truth(b, false)) return binary(TextOperator::logical_and, condition, a);
  if (is_truth(a, false)) return binary(TextOperator::logical_and, logical_not(condition), b);
  if (is_truth(b, true)) return binary(TextOperator::logical_or, logical_not(condition), a);
  return add({.op = TextOperator::choose, .type = type(a), .operands = {condition, a, b}});
}

int NodeList::call(TextOperator op, NumberType type, int a, int b) {
  return add({.op = op, .type = type, .operands = {a, b, -1}});
}

TextMeaning NodeList::meaning(int result) const {
  std::vector<int> place(nodes_.size(), -1);
  std::vector<bool> is_needed(nodes_.size());
  is_needed[static_cast<std::size_t>(result)] = true;
  for (int i = result; i >= 0; --i) {
    if (!is_needed[static_cast<std::size_t>(i)]) continue;
    for (const int operand : nodes_[static_cast<std::size_t>(i)].operands)
      if (operand >= 0) is_needed[static_cast<std::size_t>(operand)] = true;
  }
  TextMeaning meaning;
  for (int i = 0; i <= result; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!is_needed[at]) continue;
    TextNode node = nodes_[at];
    for (int& operand : node.operands)
      if (operand >= 0) operand = place[static_cast<std::size_t>(operand)];
    place[at] = static_cast<int>(meaning.nodes.size());
    meaning.nodes.push_back(node);
  }
  return meaning;
}

}  // namespace jit
