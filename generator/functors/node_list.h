// Builds nodes of a text's meaning, with C++'s implicit conversions.
#pragma once

#include "generator/functors/text_meaning.h"

namespace jit {

class NodeList {
 public:
  int truth(bool value);
  int whole(NumberType type, std::int64_t number);
  int real(NumberType type, double number);
  int input(TextInput which);
  /// Element `index` of a tensor; `reads` is a condition: whether the text reads it.
  int load(int tensor, NumberType type, int index, int reads);

  /// The score argument of a text.
  int score();
  /// Whether the text reads what this part reads.
  int is_asked();
  /// An unknown number.
  int unknown(NumberType type);
  /// A copy of a node of another list; its operands have other indices here.
  int copy(TextNode node, const std::array<int, 3>& operands);

  /// Converts a node, unless it has the type.
  int convert(int node, NumberType type);
  /// Promotes types narrower than whole32.
  int promoted(int node);
  int negative(int node);
  int bit_not(int node);
  /// A binary operation; converts operands to their common type as in C++. Logical operators and comparisons
  /// return truths.
  int binary(TextOperator op, int a, int b);
  int choose(int condition, int a, int b);
  /// least, most or magnitude of numbers that have the type.
  int call(TextOperator op, NumberType type, int a, int b = -1);
  int logical_not(int node);

  NumberType type(int node) const { return nodes_[static_cast<std::size_t>(node)].type; }
  bool is_truth(int node, bool value) const;

  /// The nodes on which `result` depends.
  TextMeaning meaning(int result) const;

 private:
  int add(TextNode node);

  std::vector<TextNode> nodes_;
};

}  // namespace jit
