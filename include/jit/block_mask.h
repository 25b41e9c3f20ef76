/// @file
/// Block masks: the blocks of scores that a mask keeps, computed once on the device for any number of calls.
///
/// @code
/// const jit::Mask within = jit::mask::text({.name = "even_keys", .body = "return k % 2 == 0 || q < 16;"});
/// const jit::BlockMaskSpec spec{.mask = within, .block_q = 16, .block_kv = 16};
/// const auto [batch, heads, rows, words] = jit::block_mask_shape(spec, 1, 1, 64, 64);
/// const jit::TensorView table = allocate(jit::DType::int32, {batch, heads, rows, words});
/// jit::block_mask(spec)({.block_mask = table, .seqlen_q = 64, .seqlen_kv = 64, .heads_q = 4}, stream);
/// const jit::AttentionSpec attention_spec{.mask = jit::mask::block_mask(16, 16, within)};
/// jit::attention(attention_spec)({.q = q, .k = k, .v = v, .o = o, .tensors = {{"block_mask", table}}}, stream);
/// @endcode
///
/// They serve masks whose empty tiles cannot be derived from positions (docs/masks.md), and blocks that the caller
/// chooses. A table has two bits per block: 64 KB for 65,536 queries and keys in blocks of 128, for each batch entry
/// and head. If the mask reads memory, mask bits, one per score of partial blocks, save attention from evaluating it:
///
/// @code
/// jit::BlockMaskSpec spec{.mask = jit::mask::document(), .block_q = 16, .block_kv = 16, .scores = true};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const auto table = jit::block_mask_shape(spec, 1, 1, 64, 64);
/// const auto places = jit::block_places_shape(spec, 1, 1, 64, 64);
/// const auto scores = jit::block_scores_shape(spec, 1, 1, 16);  // room for the bits of 16 partial blocks
/// const jit::TensorView ids = allocate(jit::DType::int32, {1, 64});
/// jit::BlockMaskArguments arguments;
/// arguments.block_mask = allocate(jit::DType::int32, {table[0], table[1], table[2], table[3]});
/// arguments.block_places = allocate(jit::DType::int32, {places[0], places[1], places[2], places[3]});
/// arguments.block_scores = allocate(jit::DType::int32, {scores[0], scores[1], scores[2], scores[3]});
/// arguments.seqlen_q = arguments.seqlen_kv = 64;
/// arguments.heads_q = 4;
/// arguments.tensors = {{"document_ids_q", ids}, {"document_ids_kv", ids}};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::BlockMask block_mask = jit::block_mask(spec);
/// block_mask.prepare();  // loads the kernel on the current device, ahead of a capture
/// block_mask(arguments, stream);
/// assert(block_mask.spec() == spec && !block_mask.source().empty());
/// jit::attention({.mask = jit::mask::block_scores(16, 16)})(
///     {.q = q, .k = k, .v = v, .o = o,
///      .tensors = {{"block_mask", arguments.block_mask}, {"block_places", arguments.block_places},
///                  {"block_scores", arguments.block_scores}}}, stream);
/// @endcode
///
/// In backward, reading bits is slower than evaluating the mask: give it a spec with the first mask, over the same
/// table.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <jit/attention.h>
#include <jit/context.h>
#include <jit/mask.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The problem that a kernel for block masks is specialized for.
struct BlockMaskSpec {
  Mask mask;               ///< that of the attention; none: the caller lists the blocks (map or lists)
  int block_q = 128;       ///< queries of a block: a multiple of 16 from 16 to 4096
  int block_kv = 128;      ///< keys of a block: the same
  bool varlen_q = false;   ///< whether calls have cu_seqlens_q
  bool varlen_kv = false;  ///< whether calls have cu_seqlens_k
  bool scores = false;     ///< whether calls have block_places and block_scores, for jit::mask::block_scores

  bool operator==(const BlockMaskSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const BlockMaskSpec& spec);

/// (batch, heads, block_rows, block_words) of a table: two int32 words per 32 blocks of keys, and an optional last word
/// with the schedule order of rows. Blocks whose sides are multiples of the kernels' tile sizes are fastest.
std::array<std::int64_t, 4> block_mask_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                             std::int64_t heads, std::int64_t seqlen_q,
                                             std::int64_t seqlen_kv);

/// (batch, heads, block_rows, block_columns) of block_places: where the bits of each block lie.
std::array<std::int64_t, 4> block_places_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                               std::int64_t heads, std::int64_t seqlen_q,
                                               std::int64_t seqlen_kv);

/// (batch, heads, room, score_words) of block_scores: a bit for each score of `room` blocks. A block takes an eighth
/// of a byte for each of its scores, of keys rounded up to 64.
std::array<std::int64_t, 4> block_scores_shape(const BlockMaskSpec& spec, std::int64_t batch,
                                               std::int64_t heads, std::int64_t room);

/// Lists of blocks: the number of blocks of each row and their columns, as in FlexAttention's BlockMask; or
/// block-sparse rows (BSR), as in SciPy and FlashInfer, whose indptr has the first index of each row. In any order.
/// Duplicates count once; blocks outside the table are ignored; counts are clamped to the capacity; a row whose end is
/// before its begin is empty. Any strides whose last is 1.
struct BlockListViews {
  TensorView counts = {};  ///< int32 (batch, heads, rows), the first two of them 1 where one is for all
  /// Int32 (batch, heads, rows, capacity), the same; with indptr (blocks of all rows).
  TensorView indices = {};
  TensorView indptr = {};  ///< in place of counts: int32 (batch, heads, rows + 1), the same
};

/// The tensors and sizes of one call.
struct BlockMaskArguments {
  /// int32, written: block_mask_shape() of the sizes below. Without the last word, which dense calls of forward_wgmma
  /// read, rows are scheduled as without a table. Batch 1 serves all batch entries, and heads 1 all heads: the mask
  /// must not depend on them then.
  TensorView block_mask;
  /// With spec.scores, int32, written: block_places_shape() of the sizes below, with the table's batch and heads. For a
  /// partial block its index in block_scores, which counts partial blocks row by row within a batch entry and head; −1
  /// for other blocks, and for partial blocks beyond `room`.
  TensorView block_places = {};
  /// With spec.scores, int32, written: block_scores_shape() of any room, 1 or more. Rows are aligned to 16 bytes. Bit
  /// order: templates/base/bit_words.cuh. Unused blocks are not written.
  TensorView block_scores = {};
  std::int64_t seqlen_q = 0;   ///< queries of the longest sequence
  std::int64_t seqlen_kv = 0;  ///< keys of the longest sequence
  std::int64_t heads_q = 0;    ///< query heads of the attention; 0: those of the table
  std::int64_t total_q = 0;    ///< rows of varlen q
  std::int64_t total_k = 0;    ///< rows of varlen k
  NamedTensors tensors = {};   ///< what the mask reads
  /// Optional: uint8 (batch, heads, rows, columns), where batch and heads may be 1 for all: 0 drops a block, whatever
  /// the mask says.
  TensorView map = {};
  /// Optional, in place of the map: blocks for which the mask is evaluated, and blocks whose scores are all kept.
  /// All others are empty.
  BlockListViews partial = {};
  BlockListViews full = {};       ///< see partial
  TensorView cu_seqlens_q = {};   ///< as in AttentionArguments
  TensorView cu_seqlens_k = {};   ///< as in AttentionArguments
  TensorView seqused_q = {};      ///< as in AttentionArguments
  TensorView seqused_k = {};      ///< as in AttentionArguments
  TensorView cache_leftpad = {};  ///< as in AttentionArguments
};

/// Checks what can be wrong with the arguments of a call, as the call itself does. Needs no device. Throws Error
/// invalid_argument whose field is the argument's name.
void check_arguments(const BlockMaskSpec& spec, const BlockMaskArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class BlockMask {
 public:
  /// Writes a table on `stream`, on the device of the current context. A block is full, partial or empty by the scores
  /// that the mask keeps: by `classify` if that decides, otherwise by all scores. There are two launches, the second of
  /// which sorts rows by their blocks; with spec.scores a third one writes the bits of partial blocks. The first call
  /// on a device, or `prepare`, loads the kernel there; later calls only launch, also under capture. Throws Error
  /// invalid_argument, whose field is the argument's name, before anything is launched; not_prepared under capture if
  /// the kernel is not loaded; launch_failed.
  void operator()(const BlockMaskArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what block_mask() throws.
  void prepare() const;

  /// The spec that it was made for.
  const BlockMaskSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  BlockMask(const BlockMaskSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  BlockMaskSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel for `spec`, compiled or taken from the cache, and loaded on the current device. Asking again for the same
/// spec is a look-up without locks. Throws Error invalid_spec before anything else; unsupported_device, compile_failed,
/// nvrtc_unavailable, driver_unavailable, load_failed, offline.
BlockMask block_mask(const BlockMaskSpec& spec, const Context& context = default_context());

}  // namespace jit
