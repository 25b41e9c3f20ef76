/// @file
/// Scores of keys by an indexer (DeepSeek-V3.2), from which `top_k` chooses: sm_90a.
///
/// @code
/// const jit::ScoreKeysSpec spec{.dtype = jit::DType::bf16, .heads = 64, .k_scale = false};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::ScoreKeysArguments arguments{.q = allocate(jit::DType::bf16, {3, 64, 128}),
///                                         .k = allocate(jit::DType::bf16, {300, 128}),
///                                         .weights = allocate(jit::DType::fp32, {3, 64}),
///                                         .scores = allocate(jit::DType::fp32, {3, 300})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::ScoreKeys score_keys = jit::score_keys(spec);
/// score_keys.prepare();  // loads the kernel on the current device, ahead of a capture
/// score_keys(arguments, stream);
/// assert(!score_keys.source().empty() && score_keys.spec() == spec);
/// @endcode
///
///      score[token, key] = k_scale[key] · Σ over heads of weights[token, head] · relu(q[token, head] · k[key])
///
/// A token sees keys [start, end); other scores are not written. Multiply the weights of a token by the dequantization
/// scale of its q. Sums are fp32, in a fixed order. For a second indexer (DeepSeek-V4.1), a token's list of blocks of 8
/// keys serves as page_table with pages of 8 keys, and only these are scored.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The problem that a kernel is specialized for.
struct ScoreKeysSpec {
  DType dtype = DType::fp8_e4m3;  ///< of q and k: fp8_e4m3, bf16 or fp16
  int heads = 64;                 ///< of q: 8, 16, 32, 64 or 128
  int head_dim = 128;             ///< 64 or 128
  int page_size =
      0;  ///< of k, with page_table: 8, 16, 32 or a multiple of 64; 0: keys lie one behind another
  bool k_scale = true;     ///< whether keys have scales
  bool block_max = false;  ///< whether the largest score of each 8 keys is written, too

  bool operator==(const ScoreKeysSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ScoreKeysSpec& spec);

/// The tensors of one call. The memory is the caller's. Rows of q and k are aligned to 16 bytes.
struct ScoreKeysArguments {
  TensorView q;  ///< (tokens, heads, head_dim)
  /// (keys, head_dim), or (pages, page_size, head_dim): any strides of multiples of 16 bytes, so that scales may follow
  /// the keys of a page.
  TensorView k;
  TensorView k_scale = {};  ///< fp32 (keys), or (pages, page_size), any strides
  TensorView weights;       ///< fp32 (tokens, heads), any strides
  TensorView starts = {};   ///< int32 (tokens), optional: the first key that a token sees
  TensorView ends = {};     ///< int32 (tokens), optional: one past the last key; default: columns of `scores`
  /// int32 (entries, pages per entry): consecutive groups of tokens / entries tokens share an entry. Keys of a page
  /// that does not exist have score −inf.
  TensorView page_table = {};
  /// Written with block_max: fp32 (tokens, (keys + 7) / 8), any strides whose last is 1. Blocks of which a token sees no key
  /// are not written.
  TensorView block_scores = {};
  /// Written: fp32 (tokens, keys), any strides whose last is 1; paged, of as many keys as are wanted.
  TensorView scores;
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments);

struct OperationState;

/// The kernel of one spec. Cheap to copy: copies share the kernel. Thread safe.
class ScoreKeys {
 public:
  /// Scores on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the kernel
  /// there. Later calls only launch, also under capture. Throws Error invalid_argument, whose field is the argument's
  /// name, before anything is launched; unsupported_device; not_prepared under capture if the kernel is not loaded;
  /// launch_failed.
  void operator()(const ScoreKeysArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what score_keys() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ScoreKeysSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  ScoreKeys(const ScoreKeysSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  ScoreKeysSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// which all but sm_90a are; compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
ScoreKeys score_keys(const ScoreKeysSpec& spec, const Context& context = default_context());

}  // namespace jit
