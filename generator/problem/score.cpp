#include <jit/score.h>

#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <jit/error.h>

#include "cache/digest.h"
#include "generator/problem/functor_node.h"

namespace jit {
namespace {

Score make(ScoreNode node) {
  Digester digester;
  digester.add(static_cast<std::uint64_t>(node.kind))
      .add(std::uint64_t{std::bit_cast<std::uint32_t>(node.cap)});
  digester.add(static_cast<std::uint64_t>(node.bias_dtype));
  if (node.text) add_functor_text(digester, *node.text);
  for (const auto& child : {node.a, node.b}) digester.add(child ? child->hash : 0);
  node.hash = digester.finish().low;
  return Score(std::make_shared<const ScoreNode>(std::move(node)));
}

std::string print(const ScoreNode& node) {
  switch (node.kind) {
    case ScoreKind::none:
      return "none";
    case ScoreKind::softcap:
      return fmt::format("softcap({})", node.cap);
    case ScoreKind::alibi:
      return "alibi";
    case ScoreKind::bias:
      return node.bias_dtype == DType::fp32 ? "bias" : fmt::format("bias({})", to_string(node.bias_dtype));
    case ScoreKind::text:
      return fmt::format("text({})", node.text->name);
    case ScoreKind::chain:
      return print(*node.a) + ", " + print(*node.b);
  }
  return "";
}

void collect(const ScoreNode& node, std::vector<FunctorTensorSpec>& tensors) {
  if (node.kind == ScoreKind::alibi)
    add_functor_tensor(tensors, {std::string(alibi_slopes_tensor), DType::fp32});
  if (node.kind == ScoreKind::bias) add_functor_tensor(tensors, {std::string(bias_tensor), node.bias_dtype});
  if (node.text) {
    for (const FunctorTensorSpec& tensor : node.text->tensors) add_functor_tensor(tensors, tensor);
  }
  if (node.a) collect(*node.a, tensors);
  if (node.b) collect(*node.b, tensors);
}

const std::shared_ptr<const ScoreNode>& none_node() {
  static const std::shared_ptr<const ScoreNode> node = make(ScoreNode{}).shared_node();
  return node;
}

}  // namespace

Score::Score() : node_(none_node()) {}

// Chains lean to the left, and "none" is absorbed, so that equal chains generate equal kernels.
Score Score::then(const Score& next) const {
  if (node().kind == ScoreKind::none) return next;
  if (next.node().kind == ScoreKind::none) return *this;
  if (next.node().kind == ScoreKind::chain) return then(Score(next.node().a)).then(Score(next.node().b));
  return make({.kind = ScoreKind::chain, .a = shared_node(), .b = next.shared_node()});
}

std::string Score::to_string() const { return print(*node_); }

std::vector<FunctorTensorSpec> Score::tensors() const {
  std::vector<FunctorTensorSpec> tensors;
  collect(*node_, tensors);
  return tensors;
}

std::uint64_t Score::hash() const { return node_->hash; }

bool Score::operator==(const Score& other) const { return node_->hash == other.node_->hash; }

namespace score {

Score none() { return Score(); }

Score softcap(float cap) {
  if (!std::isfinite(cap) || cap <= 0) {
    throw Error(ErrorCode::invalid_spec, "validate", "spec.score.cap",
                fmt::format("softcap {} must be positive and finite; leave the score out for no cap", cap));
  }
  return make({.kind = ScoreKind::softcap, .cap = cap});
}

Score alibi() { return make({.kind = ScoreKind::alibi}); }

Score bias(DType dtype) {
  if (dtype != DType::fp32 && dtype != DType::bf16 && dtype != DType::fp16) {
    throw Error(ErrorCode::invalid_spec, "validate", "spec.score.bias",
                fmt::format("a bias must be fp32, bf16 or fp16, not {}", jit::to_string(dtype)));
  }
  return make({.kind = ScoreKind::bias, .bias_dtype = dtype});
}

Score text(FunctorText text) {
  validate_functor_text(text, "score");
  return make({.kind = ScoreKind::text, .text = std::make_shared<const FunctorText>(std::move(text))});
}

}  // namespace score
}  // namespace jit
