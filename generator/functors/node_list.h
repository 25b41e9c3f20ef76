// Nodes of a text's meaning, added with the conversions that C++ makes of its own accord.
#pragma once

#include "generator/functors/text_meaning.h"

namespace jit {

class NodeList {
 public:
  int truth(bool value);
  int whole(NumberType type, std::int64_t number);
  int real(NumberType type, double number);
  int input(TextInput which);
  /// Element `index` of a tensor; `reads` is whether evaluation reads it.
  int load(int tensor, NumberType type, int index, int reads);

  /// The score that a text is given.
  int score();
  /// Whether the text reads what a part of it reads.
  int is_asked();
  /// A number of which nothing is known.
  int unknown(NumberType type);
  /// A copy of a node of another list: its operands are at other places here.
  int copy(TextNode node, const std::array<int, 3>& operands);

  /// The node itself where it has the type.
  int convert(int node, NumberType type);
  /// Types narrower than whole32 become one.
  int promoted(int node);
  int negative(int node);
  int bit_not(int node);
  /// A binary operation on numbers of any types, which C++ brings to a common one. Logical operators and
  /// comparisons make truths.
  int binary(TextOperator op, int a, int b);
  int choose(int condition, int a, int b);
  /// least, most or magnitude, of numbers that have the type.
  int call(TextOperator op, NumberType type, int a, int b = -1);
  int logical_not(int node);

  NumberType type(int node) const { return nodes_[static_cast<std::size_t>(node)].type; }
  bool is_truth(int node, bool value) const;

  /// The nodes that `result` needs, and no others.
  TextMeaning meaning(int result) const;

 private:
  int add(TextNode node);

  std::vector<TextNode> nodes_;
};

}  // namespace jit
