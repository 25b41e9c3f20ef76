/// @file
/// The loss by which an indexer (DeepSeek-V3.2) learns to choose the keys that attention finds important, and its
/// gradients.
///
/// @code
/// const jit::IndexLossSpec spec{.heads = 8, .head_dim = 64};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const auto rows = [&](std::initializer_list<std::int64_t> shape) { return allocate(jit::DType::bf16, shape); };
/// const auto floats = [&](std::initializer_list<std::int64_t> shape) { return allocate(jit::DType::fp32, shape); };
/// const jit::IndexLossArguments arguments{.q = rows({4, 8, 64}),
///                                         .k = rows({60, 64}),
///                                         .weights = floats({4, 8}),
///                                         .indices = allocate(jit::DType::int32, {4, 1, 16}),
///                                         .targets = floats({4, 1, 16}),
///                                         .loss = floats({4}),
///                                         .d_loss = floats({4}),
///                                         .dq = rows({4, 8, 64}),
///                                         .dk = rows({60, 64}),
///                                         .d_weights = floats({4, 8})};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::IndexLoss index_loss = jit::index_loss(spec);
/// index_loss.prepare();  // loads the kernels on the current device, ahead of a capture
/// index_loss(arguments, stream);
/// assert(!index_loss.source().empty() && index_loss.spec() == spec);
/// @endcode
///
///      score[token, i] = Σ over heads of weights[token, head] · relu(q[token, head] · k[indices[token, i]])
///      loss[token] = KL(p ‖ softmax(score[token])) = Σ over i of p[i] · (log p[i] − log softmax(score[token])[i])
///
/// p is `targets` divided by its sum over the keys of the list, such as the masses of jit/list_mass.h; ranks that
/// share the heads of attention add theirs first. p has no gradient. A token without keys, or whose targets are all
/// 0, has loss 0 and gradients 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The problem that kernels are specialized for.
struct IndexLossSpec {
  DType dtype = DType::bf16;  ///< of q, k and their gradients: bf16 or fp16
  int heads = 64;             ///< of q: 1 to 128
  int head_dim = 128;         ///< 64 or 128
  /// Most bytes of stream-ordered workspace for the lists' parts of dk, which take entries · head_dim · 4 for each
  /// token. Tokens beyond it take turns; one always has room. At least 1.
  std::int64_t part_bytes = std::int64_t{1} << 30;

  bool operator==(const IndexLossSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const IndexLossSpec& spec);

/// The tensors of one call. The memory is the caller's. Rows of q, k, dq and dk are aligned to 16 bytes. The last
/// stride of `indices` and `targets` is 1; other strides are free.
struct IndexLossArguments {
  TensorView q;            ///< (tokens, heads, head_dim)
  TensorView k;            ///< (keys, head_dim)
  TensorView weights;      ///< fp32 (tokens, heads)
  TensorView indices;      ///< int32 (tokens, 1, entries): rows of k; entries that name none are skipped
  TensorView counts = {};  ///< optional, int32 (tokens, 1): how many entries count, at most all
  TensorView targets;      ///< fp32 (tokens, 1, entries), not negative
  TensorView loss = {};    ///< written if given: fp32 (tokens)
  TensorView d_loss =
      {};  ///< fp32 (tokens): the gradient of `loss`, given with the next three or with none of them
  TensorView dq = {};         ///< written, as q
  TensorView dk = {};         ///< written, as k
  TensorView d_weights = {};  ///< written, as weights
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const IndexLossSpec& spec, const IndexLossArguments& arguments);

struct OperationState;

/// The kernels of one spec on every GPU. Cheap to copy: copies share the kernels. Thread safe.
class IndexLoss {
 public:
  /// Computes the loss, the gradients, or both on `stream`, on the device of the current context. Sums are fp32, in a
  /// fixed order: equal inputs give bitwise identical results. Duplicates in a list count twice. The first call on a
  /// device, or `prepare`, loads the kernels there. Later calls only launch, also under capture. Throws Error
  /// invalid_argument, whose field is the argument's name, before anything is launched; not_prepared under capture if
  /// kernels are not loaded; launch_failed; driver_error when the device has no room.
  void operator()(const IndexLossArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernels on the current device. Throws what index_loss() throws.
  void prepare() const;

  /// The spec that it was made for.
  const IndexLossSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  IndexLoss(const IndexLossSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  IndexLossSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernels of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the
/// same spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else;
/// unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
IndexLoss index_loss(const IndexLossSpec& spec, const Context& context = default_context());

}  // namespace jit
