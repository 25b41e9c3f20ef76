/// @file
/// Masks: the keys that each query sees. They are immutable values: the functions of namespace jit::mask make them, and
/// && || ! combine them. Copies share their state; masks with equal texts are equal.
///
/// @code
/// const jit::Mask window = jit::mask::causal() && jit::mask::sliding_window(1023);  // 1024 keys, with the query's own
/// assert(window.to_string() == "causal && sliding_window(1023)");
/// assert(jit::parse_mask("causal & sliding_window(1023)") == window && jit::Mask().hash() == jit::mask::none().hash());
/// const jit::Mask anchors = jit::mask::document() && (window || jit::mask::prefix(4)) && !jit::mask::prefix(0);
/// assert(anchors.tensors().size() == 2);  // document_ids_q and document_ids_kv, which calls pass
/// const jit::Mask even = jit::mask::text({.name = "even", .body = "return k % 2 == 0;"});
/// assert(jit::parse_mask("causal && text(even)", {{.name = "even", .body = "return k % 2 == 0;"}}) ==
///        (jit::mask::causal() && even));
/// // Masks of batch entries, of speculative decoding, and of blocks of scores.
/// const jit::Mask answers = jit::mask::tree() && jit::mask::sliding_window(1023);  // tree_ends
/// const jit::Mask mixed = jit::mask::causal_per_request() || jit::mask::prefix_lengths();
/// const jit::Mask draft = jit::mask::draft_tree();
/// const jit::Mask blocks = jit::mask::block_mask(128, 128, even), bits = jit::mask::block_scores(128, 128);
/// std::puts(jit::mask_usages().c_str());  // all built-in masks, as parse_mask reads them
/// @endcode
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>
#include <jit/options.h>

namespace jit {

struct MaskAccess;
struct MaskNode;

/// A mask; immutable, cheap to copy, thread safe.
class Mask {
 public:
  /// No mask: every query sees every key.
  Mask();

  /// Text that `parse_mask` reads back (a text functor shows as its name), e.g. "causal && sliding_window(1024)".
  std::string to_string() const;
  /// The tensors that each call passes, each name once.
  std::vector<FunctorTensorSpec> tensors() const;
  /// A digest of everything that the mask contributes to a kernel.
  std::uint64_t hash() const;

  /// Whether both have the same text and the same user texts.
  bool operator==(const Mask& other) const;

 private:
  friend struct MaskAccess;
  explicit Mask(std::shared_ptr<const MaskNode> node) : node_(std::move(node)) {}

  std::shared_ptr<const MaskNode> node_;
};

/// A key is seen if both masks keep it. Throws Error invalid_spec for more than 64 masks in one: a text is faster then.
Mask operator&&(const Mask& a, const Mask& b);
/// A key is seen if one of the masks keeps it, or both do. Throws as `&&`.
Mask operator||(const Mask& a, const Mask& b);
/// A key is seen if the mask drops it. Throws as `&&`.
Mask operator!(const Mask& a);

namespace mask {

/// Every query sees every key.
Mask none();
/// A query sees the keys up to its own position.
Mask causal(Alignment alignment = Alignment::bottom_right);
/// Some batch entries are causal; queries of the others see all keys. Each call passes the int32 tensor "is_causal"
/// (batch), not 0 for the entries that are causal.
Mask causal_per_request();
/// The queries of a sequence are a draft, often a tree of tokens, that one call verifies (Leviathan et al., "Fast
/// Inference from Transformers via Speculative Decoding"; Miao et al., "SpecInfer", for trees). The last seqlen_q keys
/// of the sequence are the draft's own. A query sees all earlier keys, and draft key j if bit j % 32 of word j / 32 in
/// the query's row is set. Each call passes the int32 tensor "draft_tree": (batch, seqlen_q, words), or (seqlen_q,
/// words) for all batch entries, with at least seqlen_q / 32 words, rounded up; with varlen queries (total_q, words),
/// at least 1 word. A varlen request with more queries than bits in a row is causal, so that chunks of prefill and
/// drafts share a batch.
Mask draft_tree();
/// A query sees `left` keys before its own position, itself, and `right` keys after it; −1 leaves that side open. These
/// are flash-attention's window_size_left and window_size_right. A `sliding_window` of w in Hugging Face counts the
/// query's own key, too, and is sliding_window(w - 1) here. Throws Error invalid_spec below −1.
Mask sliding_window(int window_size_left, int window_size_right = 0,
                    Alignment alignment = Alignment::bottom_right);
/// Every query sees the first `length` keys, and no others. It is used in combinations: causal() || prefix(64).
/// Throws Error invalid_spec for a negative length.
Mask prefix(int length);
/// Every query sees the first keys of its batch entry. Each call passes the int32 tensor "prefix_lengths" (batch).
Mask prefix_lengths();
/// A query sees the keys of its own document. Each call passes the int32 tensors "document_ids_q" (batch, seqlen_q)
/// and "document_ids_kv" (batch, seqlen_kv); for self-attention pass the same one twice.
Mask document();
/// Sequences that share prefixes, packed depth first: a token precedes its subtree, all tokens that continue it. A
/// query at position p = q + seqlen_kv − seqlen_q sees key k if k ≤ p < tree_ends[k]. Each call passes the int32 tensor
/// "tree_ends", one past the last row of each key's subtree: (batch, seqlen_kv), or (total_k) for varlen keys, counted
/// from the first key of the sequence. Any values are safe, and checked calls refuse those that are not nested: a key
/// with an end at or before it is never seen. A sliding window combined with this mask counts packed rows, not tokens of
/// a path.
Mask tree();
/// A query sees a key if a table contains their block, of block_q queries and block_kv keys, and `within` keeps the
/// key. Each call passes the table, the int32 tensor "block_mask", which jit::block_mask makes (jit/block_mask.h).
/// Kernels skip all other blocks, and do not evaluate `within` for full blocks. Throws Error invalid_spec unless both
/// sides are multiples of 16 from 16 to 4096.
Mask block_mask(int block_q, int block_kv, const Mask& within = none());
/// A block mask with mask bits: partial blocks of the table have one bit per score that says whether it is kept. Each
/// call passes the int32 tensors "block_mask", "block_places" and "block_scores", which jit::block_mask makes.
/// `within` is evaluated for partial blocks without bits: pass the mask from which the table was made if the bits may
/// exceed the room. Without it all keys of these blocks are seen.
Mask block_scores(int block_q, int block_kv, const Mask& within = none());
/// A mask of your own: `text.body` returns true for the keys that a query sees. Throws Error invalid_spec for names
/// that are no identifiers or are taken (keywords, macros, names that texts already have), unbalanced brackets,
/// preprocessor lines other than `#pragma unroll`, and macros that depend on the time or place of the compilation.
Mask text(FunctorText text);

}  // namespace mask

/// Reads a mask: names with arguments, `&&`, `||`, `!`, or `&`, `|`, `~` as Python has them, and parentheses. Names:
/// none, causal, causal(top_left), causal_per_request, draft_tree, sliding_window(left[, right[, top_left]]),
/// prefix(length), prefix_lengths, document, tree, block_mask(block_q, block_kv[, mask]), block_scores(block_q, block_kv[, mask]),
/// and text(name) for each of `texts`. Throws Error invalid_argument that points at the place and lists the known names.
Mask parse_mask(std::string_view text, const std::vector<FunctorText>& texts = {});

/// The built-in masks as parse_mask reads them, with commas between: for help texts.
std::string mask_usages();

}  // namespace jit
