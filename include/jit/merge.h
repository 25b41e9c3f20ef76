// Partial attention states merged into one: what split keys, cascades of a shared prefix, and devices that pass
// keys on to one another end with.
//
//   const jit::PartialState parts[] = {{prefix_o, prefix_lse}, {suffix_o, suffix_lse}};
//   jit::merge({.dtype = jit::DType::bf16})({.parts = parts, .o = o, .lse = lse}, stream);
//
// A state is what attention over some of the keys gives: o and lse. Of states over disjoint sets of keys
//
//   M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
//
// is attention over all of them (Milakov and Gimelshein, "Online normalizer calculation for softmax"; Dao et al.,
// FlashAttention). Arithmetic is fp32, sums go in the order of the states: equal inputs give bit-identical outputs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// What a merge kernel is made for. Sizes, strides and the number of states are run-time facts.
struct MergeSpec {
  DType dtype = DType::fp32;      ///< of the partial states' o: bf16, fp16 or fp32
  DType out_dtype = DType::bf16;  ///< of o: the same choice
  int head_dim_v = 128;           ///< elements of a row of o: 1 to 1024
  /// Bytes that every row of o is aligned to, the partial states' and the result's: 16, 8, 4 or 2; an element is always
  /// aligned to its own size.
  int alignment = 16;
  /// Views that a call's states are given in, at most: 1 to 32. States at equal distances, such as those stacked in
  /// one tensor, or any two with the same strides, are one view.
  int views = 2;

  bool operator==(const MergeSpec&) const = default;
};

/// Throws Error invalid_spec with the first reason why `spec` cannot be served.
void validate(const MergeSpec& spec);

/// One state, or several stacked.
struct PartialState {
  /// (tokens, heads, head_dim_v) or (batch, seqlen, heads, head_dim_v), as the result; beside a result of three
  /// dimensions also (states, tokens, heads, head_dim_v). Any strides whose last is 1.
  TensorView o;
  /// fp32 (heads, tokens), (batch, heads, seqlen) or (states, heads, tokens): natural log, any strides. −inf says that
  /// the state has no keys for the row: its o may hold anything there, and does not count. +inf, which some kernels write
  /// for such rows, says the same; NaN makes o and lse of the row NaN.
  TensorView lse;
};

/// The tensors of one call.
struct MergeArguments {
  std::span<const PartialState> parts;  ///< in the order of the sum; none: o = 0, lse = −inf
  /// (tokens, heads, head_dim_v) or (batch, seqlen, heads, head_dim_v), written; 0 where no state has keys. It shares
  /// no byte with a part, but may be the o of one itself, when types are equal.
  TensorView o;
  /// Optional: fp32 (heads, tokens) or (batch, heads, seqlen), written; −inf where no state has keys. May be the lse of
  /// a part itself.
  TensorView lse = {};
};

/// Checks what can be wrong with the arguments of a call for `spec`, as the call itself does. Needs no device. Throws
/// Error invalid_argument whose field is the argument's name, such as "parts[1].lse".
void check_arguments(const MergeSpec& spec, const MergeArguments& arguments);

struct OperationState;

/// A spec's kernel on every GPU. Cheap to copy; thread safe.
class Merge {
 public:
  /// Merges on `stream`, on the device of the current context. The first call on a device loads the kernel there, or
  /// `prepare`; later calls only launch: no compile, allocation, lock or synchronization, and nothing is read from
  /// device memory. The first call of many states, 16 or more, may load a kernel that is faster for these, with equal
  /// bits. Under capture Error not_prepared when no kernel is loaded. Without rows nothing is launched.
  /// Throws Error invalid_argument, naming the argument, before anything is launched; launch_failed.
  void operator()(const MergeArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernels on the current device, also while some stream is being captured. Throws what merge() throws.
  void prepare() const;

  const MergeSpec& spec() const { return spec_; }
  /// The generated program, that of calls of few states.
  const std::string& source() const;

 private:
  friend struct Access;
  Merge(const MergeSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  MergeSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel for `spec`, compiled or taken from the cache, and loaded on the current device. Asking again for the same
/// spec is a look-up without locks, which loads nothing. Throws Error invalid_spec before anything else;
/// unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
Merge merge(const MergeSpec& spec, const Context& context = default_context());

}  // namespace jit
