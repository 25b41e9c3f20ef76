// The nodes of Mask and Score: immutable trees, built by mask.cpp and score.cpp. Leaves are rows of
// functor_table.h with arguments, or user texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <jit/mask.h>
#include <jit/score.h>

#include "cache/digest.h"
#include "generator/functors/functor_table.h"

namespace jit {

struct ScoreMask;
struct TextRowRange;
struct MaskParts;

enum class MaskOperator { none, conjunction, disjunction, negation };

/// One of: a row with arguments (and an inner mask a, if the row has one), a text, or an operator on a, or on
/// a and b.
struct MaskNode {
  const MaskRow* row = nullptr;
  FunctorArguments arguments = {};
  std::shared_ptr<const FunctorText> text = nullptr;
  MaskOperator combination = MaskOperator::none;
  std::shared_ptr<const MaskNode> a = nullptr;
  std::shared_ptr<const MaskNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all members above
  int leaves = 1;
  std::shared_ptr<const TextRowRange> rows = nullptr;  ///< of a text (generator/functors/row_range.h)
  std::shared_ptr<const MaskParts> parts =
      nullptr;  ///< of a text without `rows` (generator/functors/mask_parts.h)
};

/// One of: a row with arguments, a text, or a followed by b.
struct ScoreNode {
  const ScoreRow* row = nullptr;
  FunctorArguments arguments = {};
  std::shared_ptr<const FunctorText> text = nullptr;
  std::shared_ptr<const ScoreNode> a = nullptr;
  std::shared_ptr<const ScoreNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all members above
  int leaves = 1;
  std::shared_ptr<const ScoreMask> mask = nullptr;  ///< kept scores (generator/functors/score_mask.h)
};

/// Limit of leaves of a tree: each is code in the innermost loop, and NVRTC's time grows with their square,
/// to some 10 s for 64.
inline constexpr int most_leaves = 64;

/// Access to private members of Mask and Score.
struct MaskAccess {
  static Mask make(std::shared_ptr<const MaskNode> node) { return Mask(std::move(node)); }
  static const std::shared_ptr<const MaskNode>& node(const Mask& mask) { return mask.node_; }
};
struct ScoreAccess {
  static Score make(std::shared_ptr<const ScoreNode> node) { return Score(std::move(node)); }
  static const std::shared_ptr<const ScoreNode>& node(const Score& score) { return score.node_; }
};
inline const MaskNode& node_of(const Mask& mask) { return *MaskAccess::node(mask); }
inline const ScoreNode& node_of(const Score& score) { return *ScoreAccess::node(score); }

/// A mask or score of a row, with its arguments; trailing ones with defaults may be omitted. The row must
/// outlive it. Throws Error invalid_spec for an illegal argument.
Mask make_mask(const MaskRow& row, FunctorArguments arguments = {}, const Mask& within = Mask());
Score make_score(const ScoreRow& row, FunctorArguments arguments = {});

/// Properties of the whole mask's device struct, derived from its leaves as in templates/problem/masks.cuh;
/// programs assert that both agree.
bool has_row_range(const Mask& mask);
int key_words(const Mask& mask);
/// Whether no score of a partial tile is evaluated singly or by a word per key: evaluating twice is cheap.
bool is_asked_by_parts(const Mask& mask);
/// Whether queries see no document but their own, or no branch of a tree but their own.
bool has_documents(const Mask& mask);
/// Whether a mask within one document equals it at other positions: `document`, combined by && with masks of the distance
/// of query and key alone.
bool is_within_documents(const Mask& mask);
/// Such a mask without `document`.
Mask within_a_document(const Mask& mask);
bool has_tree(const Mask& mask);
/// Whether `tree` is anywhere in the mask, so that its ends are read.
bool reads_tree(const Mask& mask);

/// Whether scores are bounded, or equally large in consecutive tiles of keys.
bool are_steady(const Score& score);

/// Whether it contains a text, which may return any bits.
bool has_text(const Score& score);

/// Whether it only adds terms that are independent of the score, as ALiBi and bias do; false for texts.
bool only_adds(const Score& score);

/// Whether each score reads its own element, as with a bias; false for texts.
bool reads_elements(const Score& score);

/// Block sizes of the mask outside of whose blocks everything is masked, if it has any.
struct BlockSides {
  int q, kv;
};
std::optional<BlockSides> block_sides(const Mask& mask);

/// Block sizes of a mask with a bit per score; nothing for combined masks.
std::optional<BlockSides> mask_bit_sides(const Mask& mask);

/// Whether the mask, or a part of it, is a block mask.
bool has_block_mask(const Mask& mask);

/// Number of combined functors; 0 for none.
int functor_count(const Mask& mask);
int functor_count(const Score& score);

/// Throws Error invalid_spec if a text functor cannot be compiled into a kernel; `kind` is "mask" or "score".
void validate_functor_text(const FunctorText& text, std::string_view kind);

/// The name that a text's derivative uses for derivatives with respect to elements of a tensor; empty if its
/// type has none.
std::string element_derivatives_name(const FunctorTensorSpec& tensor);

/// Whether a text has a derivative that does not cover elements of this tensor.
bool leaves_out(const FunctorText& text, const FunctorTensorSpec& tensor);

/// Adds every field of the text to a digest.
void add_functor_text(Digester& digester, const FunctorText& text);

/// Throws Error invalid_spec if a tree is too large; `kind` is "mask" or "score".
void check_leaves(int leaves, std::string_view kind);

/// Sums the leaves of a node's operands, if any; throws as check_leaves does.
template <class Node>
void count_leaves(Node& node, std::string_view kind) {
  if (node.a) node.leaves = (node.row ? 1 : 0) + node.a->leaves + (node.b ? node.b->leaves : 0);
  check_leaves(node.leaves, kind);
}

/// Adds the leaf of a node, of either kind, to a digest.
template <class Node>
void add_leaf(Digester& digester, const Node& node) {
  if (node.text) add_functor_text(digester, *node.text);
  if (node.row == nullptr) return;
  digester.add(node.row->functor.name).add(node.row->functor.device_type);
  digester.add(print(node.row->functor, node.arguments));
}

}  // namespace jit
