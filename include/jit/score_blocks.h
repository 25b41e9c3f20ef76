/// @file
/// Scores of blocks of keys, from which `top_k` chooses: the largest or the mean score of a query with the keys of a block
/// (MiniMax-M3, Qwen3.8, MoBA), or the probabilities of these keys, summed over a group's heads (NSA). For sm_90a.
///
/// @code
/// const jit::ScoreBlocksSpec spec{.attention = {.head_dim = 128, .mask = jit::mask::causal()}, .block_size = 16};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::TensorView scores = allocate(jit::DType::fp32, {1, 64, 4, 4});  // 64 keys are 4 blocks of 16
/// const jit::ScoreBlocksArguments arguments{.q = q, .k = k, .scores = scores};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::ScoreBlocks score_blocks = jit::score_blocks(spec);
/// score_blocks.prepare();  // loads the kernel on the current device, ahead of a capture
/// score_blocks(arguments, stream);
/// assert(!score_blocks.source().empty() && score_blocks.spec() == spec);
/// @endcode
///
/// Scores are those of attention, after scale, score functor and mask. The score of a block is the maximum or mean over
/// the keys that the query sees, −inf if it sees none; NaN propagates.
///
/// Probabilities are exp(score − lse), with the LSE of attention to the same keys, and 0 where a query does not see a key. Key i
/// stands for strides i to i + key_span − 1 of the sequence, and counts once for each that lies in a block: NSA's compressed
/// keys, of 32 tokens every 16, span two strides, of which a block of 64 tokens has four.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <jit/attention.h>
#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// How the scores of a block become one.
enum class BlockReduction { max, mean, probability };

/// The problem that a kernel is specialized for.
struct ScoreBlocksSpec {
  /// bf16 or fp16, head_dim up to 256, rows aligned to 16 bytes, dense or varlen sequences, without positions, not `checked`.
  /// Fields that concern values, o, dropout, splits of keys and other outputs are ignored.
  AttentionSpec attention = {};
  /// Keys of a block: 8, 16, 32, 64 or 128; of probabilities strides, also 1, 2 and 4.
  int block_size = 128;
  BlockReduction reduction = BlockReduction::max;  ///< what becomes of its scores
  int key_span = 1;                                ///< strides of a key: 1, or of probabilities 2

  bool operator==(const ScoreBlocksSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ScoreBlocksSpec& spec);

/// The tensors of one call, as attention has them. The memory is the caller's.
struct ScoreBlocksArguments {
  TensorView q;  ///< queries, as in AttentionArguments
  TensorView k;  ///< keys
  /// With probabilities, else absent: fp32 (batch, heads_q, seqlen_q), or (heads_q, total_q) of varlen queries, as attention
  /// writes it. A query whose LSE is −inf has probabilities of 0.
  TensorView lse = {};
  /// Written: fp32 (batch, seqlen_q, heads_q, blocks), or (total_q, heads_q, blocks) of varlen queries, any strides whose last
  /// is 1; of probabilities heads_kv. Blocks are as many as dense keys have; of varlen keys any number, and those behind a
  /// sequence have −inf, or probability 0. Rows outside of the ranges of cu_seqlens_q are not written.
  TensorView scores;
  NamedTensors tensors = {};     ///< the tensors that mask and score read
  TensorView cu_seqlens_q = {};  ///< as in AttentionArguments
  TensorView cu_seqlens_k = {};  ///< as in AttentionArguments
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const ScoreBlocksSpec& spec, const ScoreBlocksArguments& arguments);

struct OperationState;

/// The kernel of one spec. Cheap to copy: copies share the kernel. Thread safe.
class ScoreBlocks {
 public:
  /// Scores on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the kernel
  /// there. Later calls only launch, also under capture. Throws Error invalid_argument, whose field is the argument's
  /// name, before anything is launched; unsupported_device; not_prepared under capture if the kernel is not loaded;
  /// launch_failed.
  void operator()(const ScoreBlocksArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what score_blocks() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ScoreBlocksSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  ScoreBlocks(const ScoreBlocksSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  ScoreBlocksSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// which all but sm_90a are; compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
ScoreBlocks score_blocks(const ScoreBlocksSpec& spec, const Context& context = default_context());

}  // namespace jit
