#include <jit/score.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_table.h"
#include "generator/functors/score_mask.h"

namespace jit {
namespace {

Score make_score(ScoreNode node) {
  count_leaves(node, "score");
  Digester digester;
  add_leaf(digester, node);
  for (const auto& child : {node.a, node.b}) digester.add(child ? child->hash : 0);
  node.hash = digester.finish().low;
  node.mask = score_mask(node);
  return ScoreAccess::make(std::make_shared<const ScoreNode>(std::move(node)));
}

std::string print(const ScoreNode& node) {
  if (node.text) return "text(" + node.text->name + ")";
  if (node.row) return print(node.row->functor, node.arguments);
  return print(*node.a) + ", " + print(*node.b);
}

bool is_none(const ScoreNode& node) { return node.row == &score_row("none"); }

bool are_steady(const ScoreNode& node) {
  if (node.a) return are_steady(*node.a) && are_steady(*node.b);
  return node.row != nullptr && node.row->is_steady;
}

bool has_text(const ScoreNode& node) {
  if (node.a) return has_text(*node.a) || has_text(*node.b);
  return node.text != nullptr;
}

bool reads_elements(const ScoreNode& node) {
  if (node.a) return reads_elements(*node.a) || reads_elements(*node.b);
  return node.row != nullptr && node.row->reads_elements;
}

bool only_adds(const ScoreNode& node) {
  if (node.a) return only_adds(*node.a) && only_adds(*node.b);
  return node.row != nullptr && node.row->only_adds;
}

}  // namespace

Score make_score(const ScoreRow& row, FunctorArguments arguments) {
  return make_score(
      {.row = &row, .arguments = complete_arguments(row.functor, "score", std::move(arguments))});
}

bool are_steady(const Score& score) { return are_steady(node_of(score)); }

bool has_text(const Score& score) { return has_text(node_of(score)); }

bool only_adds(const Score& score) { return only_adds(node_of(score)); }

bool reads_elements(const Score& score) { return reads_elements(node_of(score)); }

int functor_count(const Score& score) { return is_none(node_of(score)) ? 0 : node_of(score).leaves; }

Score::Score() {
  static const Score none = make_score({.row = &score_row("none")});
  node_ = none.node_;
}

// Left-associative and without "none", so that equal chains generate equal kernels.
Score Score::then(const Score& next) const {
  if (is_none(*node_)) return next;
  if (is_none(*next.node_)) return *this;
  if (next.node_->a) return then(Score(next.node_->a)).then(Score(next.node_->b));
  return make_score({.a = node_, .b = next.node_});
}

std::string Score::to_string() const { return print(*node_); }

std::uint64_t Score::hash() const { return node_->hash; }

bool Score::operator==(const Score& other) const { return node_->hash == other.node_->hash; }

namespace score {

Score none() { return Score(); }

Score softcap(float cap) { return make_score(score_row("softcap"), {cap}); }

Score alibi() { return make_score(score_row("alibi")); }

Score bias(DType dtype) { return make_score(score_row("bias"), {dtype}); }

Score text(FunctorText text) {
  validate_functor_text(text, "score");
  return make_score({.text = std::make_shared<const FunctorText>(std::move(text))});
}

}  // namespace score
std::string score_usages() { return usages(score_table(), true); }

}  // namespace jit
