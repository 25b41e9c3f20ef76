// Which keys a query sees. Masks are immutable values: build them from the functions of namespace jit::mask,
// combine them with && || !. Copying shares; comparing compares what they mean for the generated kernel.
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
  /// The tensors that must be given at launch, each name once.
  std::vector<FunctorTensorSpec> tensors() const;
  /// Digest of everything that the mask puts into a kernel.
  std::uint64_t hash() const;

  bool operator==(const Mask& other) const;

 private:
  friend struct MaskAccess;
  explicit Mask(std::shared_ptr<const MaskNode> node) : node_(std::move(node)) {}

  std::shared_ptr<const MaskNode> node_;
};

/// A key is seen when both masks keep it; when either does; when the mask drops it. Throw Error invalid_spec
/// for more than 64 masks in one: a text does the same faster.
Mask operator&&(const Mask& a, const Mask& b);
Mask operator||(const Mask& a, const Mask& b);
Mask operator!(const Mask& a);

namespace mask {

/// Every query sees every key.
Mask none();
/// A query sees the keys up to its own position.
Mask causal(Alignment alignment = Alignment::bottom_right);
/// The same for some requests of a batch, while queries of others see all keys of theirs, as prompts that are encoded
/// do: int32 tensor "is_causal" (batch) at launch, not 0 for those that are causal.
Mask causal_per_request();
/// The queries of a request are a draft, tokens that are verified in one call (Leviathan et al., "Fast Inference from
/// Transformers via Speculative Decoding"; Miao et al., "SpecInfer", for trees). Its last seqlen_q keys are the
/// draft's own. A query sees all keys before them, and of them those whose bits are set in its row: bit j % 32 of word
/// j / 32 is that of key j of the draft. int32 tensor "draft_tree" at launch: (batch, seqlen_q, words) or (seqlen_q,
/// words) for all, words at least seqlen_q / 32, rounded up; where queries are varlen (total_q, words), words at
/// least 1. A request there that has more queries than a row has bits is causal: chunks of prefill beside drafts.
Mask draft_tree();
/// A query sees `left` keys before its own position, itself, and `right` keys after it; −1 leaves that side open. These
/// are flash-attention's window_size_left and window_size_right; a `sliding_window` of w in Hugging Face counts the query's
/// own key, too, and is sliding_window(w - 1) here. Throws Error invalid_spec below −1.
Mask sliding_window(int window_size_left, int window_size_right = 0,
                    Alignment alignment = Alignment::bottom_right);
/// Every query sees the first `length` keys and no others (combine: causal() || prefix(64)). Throws Error
/// invalid_spec for a negative length.
Mask prefix(int length);
/// The same with one length per batch entry: int32 tensor "prefix_lengths" (batch) at launch.
Mask prefix_lengths();
/// A query sees the keys with its own document id: int32 tensors "document_ids_q" (batch, seqlen_q) and
/// "document_ids_kv" (batch, seqlen_kv) at launch; for self-attention give the same one twice.
Mask document();
/// A query sees of the keys that `within` keeps those whose blocks, of block_q queries and block_kv keys each, a table
/// has: int32 tensor "block_mask" at launch, which jit::block_mask makes (jit/block_mask.h). Kernels skip all other
/// blocks without asking `within`, and do not ask it about blocks that the table says are full. Throws Error
/// invalid_spec unless both sides are multiples of 16 from 16 to 4096.
Mask block_mask(int block_q, int block_kv, const Mask& within = none());
/// The same, where the table's maker has left a bit for each score of blocks of which some is seen, so that these are
/// looked up, and neither `within` nor what it reads is needed: int32 tensors "block_mask", "block_places" and
/// "block_scores" at launch, which jit::block_mask makes. `within` is asked about blocks that have no bits: give the mask
/// that the table was made of where there may not be room for all. Without it they are seen wholly.
Mask block_scores(int block_q, int block_kv, const Mask& within = none());
/// The user's own: `text.body` returns true for what is kept. Throws Error invalid_spec for names that are no
/// identifiers or are taken (keywords, macros, what texts already have), unbalanced brackets, preprocessor
/// lines other than `#pragma unroll`, and what would make the kernel depend on when and where it was
/// compiled.
Mask text(FunctorText text);

}  // namespace mask

/// Reads a mask: names with arguments, `&&`, `||`, `!`, or `&`, `|`, `~` as Python has them, and parentheses. Names: none, causal, causal(top_left),
/// causal_per_request, draft_tree, sliding_window(left[, right[, top_left]]), prefix(length), prefix_lengths, document,
/// block_mask(block_q, block_kv[, mask]), block_scores(block_q, block_kv[, mask]), and text(name) for each of `texts`. Throws Error invalid_argument that points
/// at the place and lists the known names.
Mask parse_mask(std::string_view text, const std::vector<FunctorText>& texts = {});

/// The built-in masks as parse_mask reads them, with commas between: for help texts.
std::string mask_usages();

}  // namespace jit
