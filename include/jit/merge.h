/// @file
/// Merge combines partial attention results over different keys, as split keys, shared prefixes (cascades) and
/// devices that exchange keys need.
///
/// @code
/// const jit::TensorView prefix_o = o, prefix_lse = lse;  // attention over some of the keys
/// const jit::TensorView suffix_o = allocate(jit::DType::bf16, {1, 64, 4, 128});  // over the others
/// const jit::TensorView suffix_lse = allocate(jit::DType::fp32, {1, 4, 64});
/// const jit::PartialState parts[] = {{prefix_o, prefix_lse}, {suffix_o, suffix_lse}};
/// const jit::MergeSpec spec{.dtype = jit::DType::bf16};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::MergeArguments arguments{.parts = parts, .o = prefix_o, .lse = prefix_lse};  // in place
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::Merge merge = jit::merge(spec);
/// merge.prepare();  // loads the kernels on the current device, ahead of a capture
/// merge(arguments, stream);
/// assert(merge.spec() == spec && !merge.source().empty());
/// @endcode
///
/// A state is the result of attention over some of the keys: o and lse. For states over disjoint sets of keys
///
///      M = max lseᵢ,  wᵢ = exp(lseᵢ − M),  o = Σ wᵢ oᵢ / Σ wᵢ,  lse = M + log Σ wᵢ
///
/// is attention over all of them (Milakov and Gimelshein, "Online normalizer calculation for softmax"; Dao et al.,
/// FlashAttention). Arithmetic is fp32, and sums are in the order of the states: equal inputs give bitwise identical
/// results.
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

/// The problem that a merge kernel is specialized for. Sizes, strides and the number of states are known at a call.
struct MergeSpec {
  DType dtype = DType::fp32;      ///< of the partial states' o: bf16, fp16 or fp32
  DType out_dtype = DType::bf16;  ///< of o: the same choice
  int head_dim_v = 128;           ///< elements of a row of o: 1 to 1024
  /// Bytes that every row of o is aligned to, the partial states' and the result's: 16, 8, 4 or 2; an element is always
  /// aligned to its own size.
  int alignment = 16;
  /// The largest number of views that the states of a call are given in: 1 to 32. States at equal distances, such as
  /// those stacked in one tensor, or any two with the same strides, are one view.
  int views = 2;

  bool operator==(const MergeSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const MergeSpec& spec);

/// One state, or several stacked.
struct PartialState {
  /// (tokens, heads, head_dim_v) or (batch, seqlen, heads, head_dim_v), as the result; beside a result of three
  /// dimensions also (states, tokens, heads, head_dim_v). Any strides whose last is 1.
  TensorView o;
  /// fp32 (heads, tokens), (batch, heads, seqlen) or (states, heads, tokens): natural logarithm, any strides. −inf
  /// means that the state has no keys for the row: its o is ignored there. +inf, which some kernels write for such
  /// rows, means the same. NaN makes o and lse of the row NaN.
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

/// Checks the arguments of a call for `spec`, as the call itself does. It needs no device and reads no tensor. Throws
/// Error invalid_argument, whose field is the argument's name, such as "parts[1].lse".
void check_arguments(const MergeSpec& spec, const MergeArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class Merge {
 public:
  /// Merges on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the
  /// kernel there. Later calls only launch: they do not compile, allocate, lock, synchronize or read device memory. The
  /// first call with 16 states or more may load another kernel, which is faster for these and gives bitwise identical
  /// results. Without rows nothing is launched. Throws Error invalid_argument, whose field is the argument's name,
  /// before anything is launched; not_prepared under capture if no kernel is loaded; launch_failed.
  void operator()(const MergeArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernels on the current device, also while some stream is being captured. Throws what merge() throws.
  void prepare() const;

  /// The spec that it was made for.
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

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. A second call with the
/// same spec is a look-up without locks, which loads nothing. Thread safe. Throws Error invalid_spec before anything
/// else; unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
Merge merge(const MergeSpec& spec, const Context& context = default_context());

}  // namespace jit
