/// @file
/// The keys with the largest scores of an indexer: `top_k` of `score_keys`, whose scores never lie in memory all at
/// once. For sm_90a.
///
/// @code
/// const jit::ChooseKeysSpec spec{.scores = {.dtype = jit::DType::bf16, .heads = 8, .head_dim = 64, .k_scale = false},
///                                .k = 16};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::ChooseKeysArguments arguments{.q = allocate(jit::DType::bf16, {3, 8, 64}),
///                                          .k = allocate(jit::DType::bf16, {300, 64}),
///                                          .weights = allocate(jit::DType::fp32, {3, 8}),
///                                          .indices = allocate(jit::DType::int32, {3, 1, 16}),
///                                          .counts = allocate(jit::DType::int32, {3, 1})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::ChooseKeys choose_keys = jit::choose_keys(spec);
/// choose_keys.prepare();  // loads the kernels on the current device, ahead of a capture
/// choose_keys(arguments, stream);
/// assert(choose_keys.spec() == spec);
/// @endcode
///
/// Tokens take turns where scores of all would exceed `score_bytes`; the result is that of one turn.
#pragma once

#include <cstdint>
#include <memory>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/score_keys.h>
#include <jit/stream.h>
#include <jit/tensor.h>
#include <jit/top_k.h>

namespace jit {

/// The problem that kernels are specialized for.
struct ChooseKeysSpec {
  ScoreKeysSpec scores = {};  ///< without block_max
  int k = 2048;               ///< keys to choose for a token: 1 to 2,048
  /// Most bytes of stream-ordered workspace for scores, at least 1. One token always has room.
  std::int64_t score_bytes = std::int64_t{1} << 28;

  bool operator==(const ChooseKeysSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ChooseKeysSpec& spec);

/// The tensors of one call. The memory is the caller's. q to page_table are those of ScoreKeysArguments; without `ends`
/// a token sees `columns` keys.
struct ChooseKeysArguments {
  TensorView q;                ///< queries of the indexer
  TensorView k;                ///< keys
  TensorView k_scale = {};     ///< their scales
  TensorView weights;          ///< of heads
  TensorView starts = {};      ///< the first key that a token sees
  TensorView ends = {};        ///< one past the last key
  TensorView page_table = {};  ///< keys are chosen as slots, page · page_size + row
  TensorView
      indices;  ///< written: int32 (tokens, 1, k), any strides whose last is 1: ascending by position, then −1
  TensorView counts;  ///< written: int32 (tokens, 1), any strides: how many keys were chosen
  std::int64_t columns =
      -1;  ///< keys that any token may see, at most those of k, or of a page table's entry; below 0: all
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const ChooseKeysSpec& spec, const ChooseKeysArguments& arguments);

/// The kernels of one spec. Cheap to copy: copies share the kernels. Thread safe.
class ChooseKeys {
 public:
  /// Chooses on `stream`, on the device of the current context. Ties, NaN and −inf are those of `top_k`. The first
  /// call on a device, or `prepare`, loads the kernels there. Later calls only launch, also under capture. Throws
  /// Error invalid_argument, whose field is the argument's name, before anything is launched; unsupported_device;
  /// not_prepared under capture if kernels are not loaded; launch_failed; driver_error when the device has no room.
  void operator()(const ChooseKeysArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernels on the current device. Throws what choose_keys() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ChooseKeysSpec& spec() const { return spec_; }

 private:
  friend ChooseKeys choose_keys(const ChooseKeysSpec& spec, const Context& context);
  ChooseKeys(const ChooseKeysSpec& spec, const ScoreKeys& score, const TopK& top, const Context& context)
      : spec_(spec), score_(score), top_(top), context_(context) {}

  ChooseKeysSpec spec_;
  ScoreKeys score_;
  TopK top_;
  Context context_;
};

/// The kernels of `spec`, compiled or loaded from the cache, and loaded onto the current device. Thread safe. Throws
/// Error invalid_spec before anything else; unsupported_device, which all but sm_90a are; compile_failed,
/// nvrtc_unavailable, driver_unavailable, load_failed, offline.
ChooseKeys choose_keys(const ChooseKeysSpec& spec, const Context& context = default_context());

}  // namespace jit
