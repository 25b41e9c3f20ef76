// The nodes of Mask and Score: immutable trees, built by mask.cpp and score.cpp. Leaves are rows of
// functor_table.h with their arguments, or the user's text.
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

/// One of: a row with arguments (and the mask a within it, where the row has one), a text, an operator over a, or over a
/// and b.
struct MaskNode {
  const MaskRow* row = nullptr;
  FunctorArguments arguments = {};
  std::shared_ptr<const FunctorText> text = nullptr;
  MaskOperator combination = MaskOperator::none;
  std::shared_ptr<const MaskNode> a = nullptr;
  std::shared_ptr<const MaskNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all the above
  int leaves = 1;
  std::shared_ptr<const TextRowRange> rows = nullptr;  ///< of a text (generator/functors/row_range.h)
  std::shared_ptr<const MaskParts> parts =
      nullptr;  ///< of one without `rows` (generator/functors/mask_parts.h)
};

/// One of: a row with arguments, a text, first a then b.
struct ScoreNode {
  const ScoreRow* row = nullptr;
  FunctorArguments arguments = {};
  std::shared_ptr<const FunctorText> text = nullptr;
  std::shared_ptr<const ScoreNode> a = nullptr;
  std::shared_ptr<const ScoreNode> b = nullptr;
  std::uint64_t hash = 0;  ///< of all the above
  int leaves = 1;
  std::shared_ptr<const ScoreMask> mask = nullptr;  ///< what it keeps (generator/functors/score_mask.h)
};

/// Leaves of one tree: each is code in the innermost loop, and the time that NVRTC takes grows with their
/// square. 64 take it some 10 s.
inline constexpr int most_leaves = 64;

/// Access to the private parts of Mask and Score.
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

/// A row with these arguments; those that have defaults may be left out at the end. The row must live as long
/// as the mask. Throws Error invalid_spec for an illegal argument.
Mask make_mask(const MaskRow& row, FunctorArguments arguments = {}, const Mask& within = Mask());
Score make_score(const ScoreRow& row, FunctorArguments arguments = {});

/// Members of the device struct of the whole mask, derived from those of its leaves as
/// templates/problem/masks.cuh derives it; programs assert both.
bool has_row_range(const Mask& mask);
int key_words(const Mask& mask);
/// Whether no score of a partial tile is asked for by itself, nor by a word of its key: asking once more is cheap.
bool is_asked_by_parts(const Mask& mask);

/// Whether scores stay bounded, or as large in one tile of keys as in the next.
bool are_steady(const Score& score);

/// Whether some of it is a text, which may make numbers of any bits.
bool has_text(const Score& score);

/// Whether it adds what does not depend on the score, as ALiBi and a bias do; no text is known to.
bool only_adds(const Score& score);

/// Whether each score reads an element of its own, as with a bias. Texts count as those that do not.
bool reads_elements(const Score& score);

/// The sides of blocks that a tile of scores must lie in to be seen at all, if there are such.
struct BlockSides {
  int q, kv;
};
std::optional<BlockSides> block_sides(const Mask& mask);

/// The sides of blocks whose scores the mask knows by bits; nothing of a mask that is joined of several.
std::optional<BlockSides> mask_bit_sides(const Mask& mask);

/// Whether it, or some mask that is joined in it, is of blocks.
bool has_block_mask(const Mask& mask);

/// How many functors are joined in it; 0 for none.
int functor_count(const Mask& mask);
int functor_count(const Score& score);

/// Throws Error invalid_spec when a text functor cannot become part of a kernel; `kind` is "mask" or "score".
void validate_functor_text(const FunctorText& text, std::string_view kind);

/// The name by which the derivative of a text calls the derivatives with respect to the elements of a tensor;
/// empty where the tensor's type has none.
std::string element_derivatives_name(const FunctorTensorSpec& tensor);

/// Whether a text gives its derivative, which then says nothing of the elements of this tensor.
bool leaves_out(const FunctorText& text, const FunctorTensorSpec& tensor);

/// Adds every field of the text to a digest.
void add_functor_text(Digester& digester, const FunctorText& text);

/// Throws Error invalid_spec for a tree that is too large; `kind` is "mask" or "score".
void check_leaves(int leaves, std::string_view kind);

/// Derives the leaves of a node from those of its parts, if it has some; throws as check_leaves does.
template <class Node>
void count_leaves(Node& node, std::string_view kind) {
  if (node.a) node.leaves = (node.row ? 1 : 0) + node.a->leaves + (node.b ? node.b->leaves : 0);
  check_leaves(node.leaves, kind);
}

/// Adds the leaf of a node, of whatever kind it is.
template <class Node>
void add_leaf(Digester& digester, const Node& node) {
  if (node.text) add_functor_text(digester, *node.text);
  if (node.row == nullptr) return;
  digester.add(node.row->functor.name).add(node.row->functor.device_type);
  digester.add(print(node.row->functor, node.arguments));
}

}  // namespace jit
