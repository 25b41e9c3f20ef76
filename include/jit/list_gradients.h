/// @file
/// Gradients of attention to lists of keys (docs/sparse.md): dQ, dK and dV of calls whose spec has list_block.
///
/// @code
/// jit::ListGradientsSpec spec{.attention = {.head_dim = 128,
///                                           .sequences_q = jit::SequenceKind::varlen,
///                                           .sequences_kv = jit::SequenceKind::varlen,
///                                           .list_block = 16}};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::ListGradients gradients = jit::list_gradients(spec);
/// gradients.prepare();  // loads the kernels on the current device, ahead of a capture
/// const auto rows = [&](std::int64_t count) { return allocate(jit::DType::bf16, {count, 2, 128}); };
/// const jit::BackwardArguments arguments{.d_o = rows(4),
///                                        .q = rows(4),
///                                        .k = rows(64),
///                                        .v = rows(64),
///                                        .o = rows(4),
///                                        .lse = allocate(jit::DType::fp32, {2, 4}),
///                                        .dq = rows(4),
///                                        .dk = rows(64),
///                                        .dv = rows(64),
///                                        .tensors = {{"key_lists", allocate(jit::DType::int32, {4, 2, 3})},
///                                                    {"key_counts", allocate(jit::DType::int32, {4, 2})}},
///                                        .cu_seqlens_q = allocate(jit::DType::int32, {2}),
///                                        .cu_seqlens_k = allocate(jit::DType::int32, {2})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// gradients(arguments, stream);
/// assert(!gradients.source().empty() && gradients.spec().attention.list_block == 16);
/// @endcode
///
/// A first pass reads the queries of each list once: it writes dQ, and what the list adds to the gradient of each of its keys,
/// in fp32. Lists are transposed (jit/transpose_lists.h), and a second pass sums that for each key, in the order of lists, and
/// of the entries of one.
///
/// On sm_90a lists of blocks of 64 or 128 keys are read the other way, by wgmma: a block's keys are multiplied with the queries
/// whose lists name it, whose dQ is left for each entry, and a second pass sums that for each query. It serves head dims above
/// 32 up to 128, rows aligned to 16 bytes, and 1, 2, 4, 8, 16, 32 or 64 query heads for each KV head.
///
/// Either way no sum needs an atomic operation: equal inputs give bitwise identical results. Nothing waits for the device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <jit/attention.h>
#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>
#include <jit/stream.h>

namespace jit {

/// The problem that kernels are specialized for.
struct ListGradientsSpec {
  /// The spec of the attention: with list_block, varlen keys, 16-bit q, k and v, without key_arrivals. Fields that
  /// concern further outputs are ignored.
  AttentionSpec attention = {};
  /// Most bytes of stream-ordered workspace for the lists' parts of dK and dV, which take heads_kv · entries · list_block ·
  /// (head_dim + head_dim_v) · 4 for each list, without head_dim_v where values are columns of keys. By wgmma for those of dQ,
  /// heads_q · list_queries · entries · head_dim · 4 for each list; tiles of queries that are not full take more, and dK and dV
  /// of all keys in fp32. Lists beyond it take turns; one list always has room. At least 1.
  std::int64_t part_bytes = std::int64_t{1} << 30;

  bool operator==(const ListGradientsSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const ListGradientsSpec& spec);

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const ListGradientsSpec& spec, const BackwardArguments& arguments);

struct OperationState;

/// The kernels of one spec on every GPU. Cheap to copy: copies share the kernels. Thread safe.
class ListGradients {
 public:
  /// Computes dq, dk and dv, and d_sinks if given, on `stream`, on the device of the current context. All rows are
  /// written; rows that no query sees, or that belong to no sequence, are 0. With values_in_keys v and dv are absent,
  /// and dk is the gradient of the latents. Results are always deterministic. d_tensors are refused. A query with |lse|
  /// ≥ 2^17 / log2(e) = 90,852 has gradients of 0; rows of a group beyond the end of its sequence add nothing to
  /// d_sinks. The first call on a device, or `prepare`, loads the kernels there. Later calls only launch, also under
  /// capture. Throws Error invalid_argument, whose field is the argument's name,
  /// before anything is launched; not_prepared under capture if kernels are not loaded; launch_failed; driver_error when the
  /// device has no room.
  void operator()(const BackwardArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernels on the current device. Throws what list_gradients() throws.
  void prepare() const;

  /// The spec that it was made for.
  const ListGradientsSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  ListGradients(const ListGradientsSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  ListGradientsSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernels of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
ListGradients list_gradients(const ListGradientsSpec& spec, const Context& context = default_context());

}  // namespace jit
