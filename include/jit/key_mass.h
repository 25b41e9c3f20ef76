/// @file
/// The mass of each key: the sum of its probabilities over all queries, by which caches are evicted (H2O, SnapKV).
///
/// @code
/// jit::KeyMassSpec spec{.attention = {.head_dim = 128, .mask = jit::mask::causal()}};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::TensorView mass = allocate(jit::DType::fp32, {1, 4, 64});  // as many keys as queries here
/// const jit::KeyMassArguments arguments{.q = q, .k = k, .lse = lse, .mass = mass};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::KeyMass key_mass = jit::key_mass(spec);
/// key_mass.prepare();  // loads the kernel on the current device, ahead of a capture
/// key_mass(arguments, stream);
/// assert(!key_mass.source().empty() && key_mass.spec().attention.head_dim == 128);
/// @endcode
///
/// mass[key] = Σ exp(score − lse) over the queries that see the key. Scores are those of attention, after scale, score
/// functor and mask, before dropout; a sink counts through LSE. A query with |lse| ≥ 2^17 / log2(e) = 90,852, as
/// padding has that a bias of −1e9 masks, adds nothing. Sums are fp32 in a fixed order: equal inputs give bitwise
/// identical results. For the mass of the last queries alone, pass their rows of q and lse: masks that are aligned to
/// the ends of sequences keep their positions.
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

/// The problem that a kernel is specialized for.
struct KeyMassSpec {
  /// The spec of the attention that computed LSE: bf16 or fp16, head_dim up to 256, dense, varlen or paged
  /// keys, without positions, not `checked`. Fields that concern values, o, dropout, splits of keys and other
  /// outputs are ignored.
  AttentionSpec attention = {};
  /// Whether each query head has a mass, else each KV head the sum over its query heads.
  bool per_query_head = false;

  bool operator==(const KeyMassSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const KeyMassSpec& spec);

/// The tensors of one call, as attention has them. The memory is the caller's.
struct KeyMassArguments {
  TensorView q;    ///< queries, as in AttentionArguments
  TensorView k;    ///< keys
  TensorView lse;  ///< LSE of all keys, fp32 (batch, heads_q, seqlen_q) or (heads_q, total_q): any strides
  /// Written: fp32 (batch, heads, seqlen_kv), or (heads, total_k) of varlen keys, any strides. Rows outside of the ranges
  /// of cu_seqlens_k are not written. Paged keys of a request have their own places, seqlen_kv = max_pages · page_size;
  /// those behind its keys become 0, and pages that requests share have a mass in each.
  TensorView mass;
  NamedTensors tensors = {};     ///< the tensors that mask and score read
  TensorView cu_seqlens_q = {};  ///< as in AttentionArguments
  TensorView cu_seqlens_k = {};  ///< as in AttentionArguments
  TensorView page_table = {};    ///< as in AttentionArguments
  TensorView seqused_k = {};     ///< as in AttentionArguments, beside page_table alone
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const KeyMassSpec& spec, const KeyMassArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class KeyMass {
 public:
  /// Computes masses on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads
  /// the kernel there. Later calls only launch, also under capture. Throws Error invalid_argument, whose field is the
  /// argument's name, before anything is launched; not_prepared under capture if the kernel is not loaded; launch_failed.
  void operator()(const KeyMassArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what key_mass() throws.
  void prepare() const;

  /// The spec that it was made for.
  const KeyMassSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  KeyMass(const KeyMassSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  KeyMassSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
KeyMass key_mass(const KeyMassSpec& spec, const Context& context = default_context());

}  // namespace jit
