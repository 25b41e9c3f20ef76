#include <jit/mask.h>

#include <algorithm>
#include <array>
#include <vector>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_table.h"
#include "generator/functors/mask_parts.h"
#include "generator/functors/row_range.h"

namespace jit {
namespace {

Mask make_mask(MaskNode node) {
  count_leaves(node, "mask");
  Digester digester;
  digester.add(static_cast<std::uint64_t>(node.combination));
  add_leaf(digester, node);
  for (const auto& child : {node.a, node.b}) digester.add(child ? child->hash : 0);
  node.hash = digester.finish().low;
  return MaskAccess::make(std::make_shared<const MaskNode>(std::move(node)));
}

// Binding strength, by which to_string sets parentheses.
int precedence(const MaskNode& node) {
  if (node.combination == MaskOperator::disjunction) return 0;
  return node.combination == MaskOperator::conjunction ? 1 : 2;
}

std::string print(const MaskNode& node);

std::string print_operand(const MaskNode& node, int parent) {
  return precedence(node) < parent ? "(" + print(node) + ")" : print(node);
}

std::string print(const MaskNode& node) {
  switch (node.combination) {
    case MaskOperator::conjunction:
      return print_operand(*node.a, 1) + " && " + print_operand(*node.b, 2);
    case MaskOperator::disjunction:
      return print_operand(*node.a, 0) + " || " + print_operand(*node.b, 1);
    case MaskOperator::negation:
      return "!" + print_operand(*node.a, 2);
    case MaskOperator::none:
      break;
  }
  if (node.text) return "text(" + node.text->name + ")";
  std::string text = print(node.row->functor, node.arguments);
  if (node.a) text.replace(text.size() - 1, 1, ", " + print(*node.a) + ")");
  return text;
}

bool is_none(const MaskNode& node) { return node.row == &mask_row("none"); }

bool rows_begin_first(const MaskNode& node) {
  if (node.combination == MaskOperator::conjunction || node.combination == MaskOperator::disjunction)
    return rows_begin_first(*node.a) && rows_begin_first(*node.b);
  if (node.text) return node.rows != nullptr && !node.rows->begin;
  return node.row != nullptr && node.row->rows_begin_first;
}

bool has_row_range(const MaskNode& node) {
  if (node.combination == MaskOperator::conjunction) return has_row_range(*node.a) && has_row_range(*node.b);
  if (node.combination == MaskOperator::disjunction) return rows_begin_first(node);
  return node.rows != nullptr || (node.row != nullptr && node.row->has_row_range);
}

std::optional<BlockSides> block_sides(const MaskNode& node) {
  if (node.row != nullptr && node.row->functor.has_within)
    return BlockSides{std::get<int>(node.arguments[0]), std::get<int>(node.arguments[1])};
  if (node.combination != MaskOperator::conjunction) return {};
  const std::optional<BlockSides> a = block_sides(*node.a);
  return a ? a : block_sides(*node.b);
}

int key_words(const MaskNode& node) {
  if (has_row_range(node)) return 0;
  switch (node.combination) {
    case MaskOperator::conjunction:
    case MaskOperator::disjunction:
      return key_words(*node.a) + key_words(*node.b);
    case MaskOperator::negation:
      return key_words(*node.a);
    case MaskOperator::none:
      break;
  }
  const bool has_within = node.row != nullptr && node.row->functor.has_within;
  if (has_within && !node.row->knows_scores) return node.a ? key_words(*node.a) : 0;
  return node.row != nullptr ? node.row->key_words : 2;  // a text is evaluated per score
}

bool has_block_mask(const MaskNode& node) {
  return (node.row != nullptr && node.row->functor.has_within) || (node.a && has_block_mask(*node.a)) ||
         (node.b && has_block_mask(*node.b));
}

bool is_asked_by_parts(const MaskNode& node) {
  if (node.parts != nullptr) {
    const std::vector<MaskPart>& parts = node.parts->parts;
    return std::none_of(parts.begin(), parts.end(),
                        [](const MaskPart& part) { return part.kind == MaskPart::Kind::score; });
  }
  if (node.row != nullptr && node.row->knows_scores) return true;
  if (node.combination == MaskOperator::none && !(node.row != nullptr && node.row->functor.has_within))
    return has_row_range(node);
  return (!node.a || is_asked_by_parts(*node.a)) && (!node.b || is_asked_by_parts(*node.b));
}

// Whether a score that the mask keeps is one that the mask of this name keeps.
bool is_within(const MaskNode& node, std::string_view name) {
  if (node.row != nullptr) return node.row->functor.name == name;
  return node.combination == MaskOperator::conjunction &&
         (is_within(*node.a, name) || is_within(*node.b, name));
}

bool has_leaf(const MaskNode& node, std::string_view name) {
  return (node.row != nullptr && node.row->functor.name == name) || (node.a && has_leaf(*node.a, name)) ||
         (node.b && has_leaf(*node.b, name));
}

}  // namespace

Mask make_mask(const MaskRow& row, FunctorArguments arguments, const Mask& within) {
  arguments = complete_arguments(row.functor, "mask", std::move(arguments));
  if (row.is_none != nullptr && row.is_none(arguments)) return Mask();
  return make_mask({.row = &row,
                    .arguments = std::move(arguments),
                    .a = is_none(node_of(within)) ? nullptr : MaskAccess::node(within)});
}

std::optional<BlockSides> block_sides(const Mask& mask) { return block_sides(node_of(mask)); }

std::optional<BlockSides> mask_bit_sides(const Mask& mask) {
  const MaskNode& node = node_of(mask);
  return node.row != nullptr && node.row->knows_scores ? block_sides(node) : std::nullopt;
}

bool has_block_mask(const Mask& mask) { return has_block_mask(node_of(mask)); }

bool has_row_range(const Mask& mask) { return has_row_range(node_of(mask)); }

int key_words(const Mask& mask) { return key_words(node_of(mask)); }

bool is_asked_by_parts(const Mask& mask) { return is_asked_by_parts(node_of(mask)); }

bool has_documents(const Mask& mask) { return is_within(node_of(mask), "document"); }

namespace {

// Leaves `document` of a conjunction whose other leaves know distances alone; −1: it is none.
int documents_beside_distances(const MaskNode& node) {
  if (node.combination == MaskOperator::conjunction) {
    const int a = documents_beside_distances(*node.a), b = documents_beside_distances(*node.b);
    return a < 0 || b < 0 ? -1 : a + b;
  }
  if (node.row == nullptr) return -1;
  const std::string_view name = node.row->functor.name;
  if (name == "document") return 1;
  return name == "causal" || name == "sliding_window" ? 0 : -1;
}

}  // namespace

bool is_within_documents(const Mask& mask) { return documents_beside_distances(node_of(mask)) == 1; }

Mask within_a_document(const Mask& mask) {
  const MaskNode& node = node_of(mask);
  if (node.combination == MaskOperator::conjunction)
    return within_a_document(MaskAccess::make(node.a)) && within_a_document(MaskAccess::make(node.b));
  return node.row->functor.name == "document" ? Mask() : mask;
}

bool has_tree(const Mask& mask) { return is_within(node_of(mask), "tree"); }

bool reads_tree(const Mask& mask) { return has_leaf(node_of(mask), "tree"); }

int functor_count(const Mask& mask) { return is_none(node_of(mask)) ? 0 : node_of(mask).leaves; }

Mask::Mask() {
  static const Mask none = make_mask({.row = &mask_row("none")});
  node_ = none.node_;
}

std::string Mask::to_string() const { return print(*node_); }

std::uint64_t Mask::hash() const { return node_->hash; }

bool Mask::operator==(const Mask& other) const { return node_->hash == other.node_->hash; }

// "none" keeps everything: operators drop it, so that equal masks generate equal kernels.
Mask operator&&(const Mask& a, const Mask& b) {
  if (is_none(node_of(a))) return b;
  if (is_none(node_of(b))) return a;
  return make_mask(
      {.combination = MaskOperator::conjunction, .a = MaskAccess::node(a), .b = MaskAccess::node(b)});
}

Mask operator||(const Mask& a, const Mask& b) {
  if (is_none(node_of(a)) || is_none(node_of(b))) return Mask();
  return make_mask(
      {.combination = MaskOperator::disjunction, .a = MaskAccess::node(a), .b = MaskAccess::node(b)});
}

Mask operator!(const Mask& a) {
  if (node_of(a).combination == MaskOperator::negation) return MaskAccess::make(node_of(a).a);
  return make_mask({.combination = MaskOperator::negation, .a = MaskAccess::node(a)});
}

namespace mask {

Mask none() { return Mask(); }

Mask causal(Alignment alignment) { return make_mask(mask_row("causal"), {alignment}); }

Mask causal_per_request() { return make_mask(mask_row("causal_per_request")); }

Mask draft_tree() { return make_mask(mask_row("draft_tree")); }

Mask sliding_window(int window_size_left, int window_size_right, Alignment alignment) {
  return make_mask(mask_row("sliding_window"), {window_size_left, window_size_right, alignment});
}

Mask prefix(int length) { return make_mask(mask_row("prefix"), {length}); }

Mask prefix_lengths() { return make_mask(mask_row("prefix_lengths")); }

Mask document() { return make_mask(mask_row("document")); }

Mask tree() { return make_mask(mask_row("tree")); }

Mask block_mask(int block_q, int block_kv, const Mask& within) {
  return make_mask(mask_row("block_mask"), {block_q, block_kv}, within);
}

Mask block_scores(int block_q, int block_kv, const Mask& within) {
  return make_mask(mask_row("block_scores"), {block_q, block_kv}, within);
}

Mask text(FunctorText text) {
  validate_functor_text(text, "mask");
  std::shared_ptr<const TextRowRange> rows = text_row_range(text);
  std::shared_ptr<const MaskParts> parts = rows == nullptr ? mask_parts(text) : nullptr;
  return make_mask({.text = std::make_shared<const FunctorText>(std::move(text)),
                    .rows = std::move(rows),
                    .parts = std::move(parts)});
}

}  // namespace mask
std::string mask_usages() { return usages(mask_table(), true); }

}  // namespace jit
