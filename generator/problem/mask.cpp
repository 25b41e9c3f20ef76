#include <jit/mask.h>

#include <fmt/format.h>
#include <jit/error.h>

#include "cache/digest.h"
#include "generator/problem/functor_node.h"

namespace jit {
namespace {

Mask make(MaskNode node) {
  Digester digester;
  digester.add(static_cast<std::uint64_t>(node.kind)).add(static_cast<std::uint64_t>(node.alignment));
  digester.add(static_cast<std::uint64_t>(node.left)).add(static_cast<std::uint64_t>(node.right));
  digester.add(static_cast<std::uint64_t>(node.length));
  if (node.text) add_functor_text(digester, *node.text);
  for (const auto& child : {node.a, node.b}) digester.add(child ? child->hash : 0);
  node.hash = digester.finish().low;
  return Mask(std::make_shared<const MaskNode>(std::move(node)));
}

// Higher binds tighter; decides where to_string needs parentheses.
int precedence(MaskKind kind) {
  if (kind == MaskKind::disjunction) return 0;
  return kind == MaskKind::conjunction ? 1 : 2;
}

std::string print(const MaskNode& node);

std::string print_operand(const MaskNode& node, int parent) {
  return precedence(node.kind) < parent ? "(" + print(node) + ")" : print(node);
}

std::string print(const MaskNode& node) {
  const bool top_left = node.alignment == Alignment::top_left;
  switch (node.kind) {
    case MaskKind::none:
      return "none";
    case MaskKind::causal:
      return top_left ? "causal(top_left)" : "causal";
    case MaskKind::sliding_window:
      return fmt::format("window({}, {}{})", node.left, node.right, top_left ? ", top_left" : "");
    case MaskKind::prefix:
      return fmt::format("prefix({})", node.length);
    case MaskKind::prefix_lengths:
      return "prefix_lengths";
    case MaskKind::document:
      return "document";
    case MaskKind::text:
      return fmt::format("text({})", node.text->name);
    case MaskKind::conjunction:
      return print_operand(*node.a, 1) + " && " + print_operand(*node.b, 2);
    case MaskKind::disjunction:
      return print_operand(*node.a, 0) + " || " + print_operand(*node.b, 1);
    case MaskKind::negation:
      return "!" + print_operand(*node.a, 2);
  }
  return "";
}

void collect(const MaskNode& node, std::vector<FunctorTensorSpec>& tensors) {
  if (node.kind == MaskKind::prefix_lengths) {
    add_functor_tensor(tensors, {std::string(prefix_lengths_tensor), DType::int32});
  }
  if (node.kind == MaskKind::document) {
    add_functor_tensor(tensors, {std::string(document_ids_q_tensor), DType::int32});
    add_functor_tensor(tensors, {std::string(document_ids_kv_tensor), DType::int32});
  }
  if (node.text) {
    for (const FunctorTensorSpec& tensor : node.text->tensors) add_functor_tensor(tensors, tensor);
  }
  if (node.a) collect(*node.a, tensors);
  if (node.b) collect(*node.b, tensors);
}

const std::shared_ptr<const MaskNode>& none_node() {
  static const std::shared_ptr<const MaskNode> node = make(MaskNode{}).shared_node();
  return node;
}

}  // namespace

Mask::Mask() : node_(none_node()) {}

std::string Mask::to_string() const { return print(*node_); }

std::vector<FunctorTensorSpec> Mask::tensors() const {
  std::vector<FunctorTensorSpec> tensors;
  collect(*node_, tensors);
  return tensors;
}

std::uint64_t Mask::hash() const { return node_->hash; }

bool Mask::operator==(const Mask& other) const { return node_->hash == other.node_->hash; }

// "none" keeps everything: as an operand it is absorbed, so that equal masks generate equal kernels.
Mask operator&&(const Mask& a, const Mask& b) {
  if (a.node().kind == MaskKind::none) return b;
  if (b.node().kind == MaskKind::none) return a;
  return make({.kind = MaskKind::conjunction, .a = a.shared_node(), .b = b.shared_node()});
}

Mask operator||(const Mask& a, const Mask& b) {
  if (a.node().kind == MaskKind::none || b.node().kind == MaskKind::none) return Mask();
  return make({.kind = MaskKind::disjunction, .a = a.shared_node(), .b = b.shared_node()});
}

Mask operator!(const Mask& a) {
  if (a.node().kind == MaskKind::negation) return Mask(a.node().a);
  return make({.kind = MaskKind::negation, .a = a.shared_node()});
}

namespace mask {

Mask none() { return Mask(); }

Mask causal(Alignment alignment) { return make({.kind = MaskKind::causal, .alignment = alignment}); }

Mask sliding_window(int window_size_left, int window_size_right, Alignment alignment) {
  for (const auto& [name, value] :
       {std::pair("window_size_left", window_size_left), std::pair("window_size_right", window_size_right)}) {
    if (value < -1) {
      throw Error(ErrorCode::invalid_spec, "validate", fmt::format("spec.mask.{}", name),
                  fmt::format("{} = {} must be at least 0, or -1 for an open side", name, value));
    }
  }
  if (window_size_left == -1 && window_size_right == -1) return Mask();
  return make({.kind = MaskKind::sliding_window,
               .alignment = alignment,
               .left = window_size_left,
               .right = window_size_right});
}

Mask prefix(int length) {
  if (length < 0) {
    throw Error(ErrorCode::invalid_spec, "validate", "spec.mask.length",
                fmt::format("prefix length {} must be at least 0", length));
  }
  return make({.kind = MaskKind::prefix, .length = length});
}

Mask prefix_lengths() { return make({.kind = MaskKind::prefix_lengths}); }

Mask document() { return make({.kind = MaskKind::document}); }

Mask text(FunctorText text) {
  validate_functor_text(text, "mask");
  return make({.kind = MaskKind::text, .text = std::make_shared<const FunctorText>(std::move(text))});
}

}  // namespace mask
}  // namespace jit
