/// @file
/// The mass of each listed key: its probability in attention, summed over all heads of a token. A target of indexers
/// (jit/index_loss.h). There is no mask and no score function: lists hold keys that the token sees.
///
/// @code
/// const jit::ListMassSpec spec{.head_dim = 64, .heads = 8};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::ListMassArguments arguments{.q = allocate(jit::DType::bf16, {4, 8, 64}),
///                                        .k = allocate(jit::DType::bf16, {60, 1, 64}),
///                                        .lse = allocate(jit::DType::fp32, {8, 4}),
///                                        .indices = allocate(jit::DType::int32, {4, 1, 16}),
///                                        .mass = allocate(jit::DType::fp32, {4, 1, 16})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::ListMass list_mass = jit::list_mass(spec);
/// list_mass.prepare();  // loads the kernel on the current device, ahead of a capture
/// list_mass(arguments, stream);
/// assert(!list_mass.source().empty() && list_mass.spec() == spec);
/// @endcode
///
///      mass[token, entry] = Σ over heads of exp(softmax_scale · q[token, head] · k[entry's row] − lse[head, token])
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The problem that a kernel is specialized for.
struct ListMassSpec {
  DType dtype = DType::bf16;  ///< of q and k: bf16 or fp16
  int head_dim = 576;         ///< a multiple of 8 up to 576
  int heads = 128;            ///< of q for each head of k, at least 1

  bool operator==(const ListMassSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ListMassSpec& spec);

/// The tensors of one call. The memory is the caller's. Rows of q and k are aligned to 16 bytes.
struct ListMassArguments {
  TensorView q;            ///< (tokens, heads_kv · heads, head_dim)
  TensorView k;            ///< (keys, heads_kv, head_dim), of latents one head
  TensorView lse;          ///< fp32 (heads_kv · heads, tokens), any strides, as attention writes it
  TensorView indices;      ///< int32 (tokens, 1, entries), any strides but the last, which is 1: rows of k
  TensorView counts = {};  ///< optional, int32 (tokens, 1), any strides: how many entries count, at most all
  /// Written: fp32 (tokens, 1, entries), any strides whose last is 1. Entries that do not count, or name no row, have
  /// 0.
  TensorView mass;
  std::optional<float> softmax_scale = {};  ///< default: 1/sqrt(head_dim)
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const ListMassSpec& spec, const ListMassArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class ListMass {
 public:
  /// Computes masses on `stream`, on the device of the current context. Sums are fp32, in a fixed order. A head whose
  /// LSE is −inf adds nothing. The first call on a device, or `prepare`, loads the kernel there. Later calls only
  /// launch, also under capture. Throws Error invalid_argument, whose field is the argument's name, before anything
  /// is launched; not_prepared under capture if the kernel is not loaded; launch_failed.
  void operator()(const ListMassArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what list_mass() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ListMassSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  ListMass(const ListMassSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  ListMassSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the
/// same spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else;
/// unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
ListMass list_mass(const ListMassSpec& spec, const Context& context = default_context());

}  // namespace jit
