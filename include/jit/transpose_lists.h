/// @file
/// Transposed lists: for each key, or block of keys, the lists that name it, as gradients of keys need them.
///
/// @code
/// const jit::TransposeListsArguments arguments{.indices = allocate(jit::DType::int32, {4, 1, 8}),
///                                              .starts = allocate(jit::DType::int32, {1, 65}),
///                                              .places = allocate(jit::DType::int32, {1, 32}),
///                                              .limit = 64};
/// jit::check_arguments(arguments);  // throws Error invalid_argument, as the call does
/// const jit::TransposeLists transpose = jit::transpose_lists();
/// transpose.prepare();  // loads the kernel on the current device, ahead of a capture
/// transpose(arguments, stream);
/// assert(!transpose.source().empty());
/// @endcode
///
/// Launches count, scan and fill; nothing waits for the device, and results are the same in every run.
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

/// The tensors of one call, all int32. The memory is the caller's.
struct TransposeListsArguments {
  TensorView indices;  ///< (rows, heads, entries): the list of each row, any strides but the last, which is 1
  TensorView counts =
      {};  ///< optional, (rows, heads), any strides: entries that count; cut to what there are
  /// Written, dense (heads, limit + 1): the places of entry e begin at [e] and end before [e + 1].
  TensorView starts;
  /// Written, dense (heads, room), room at least rows · entries: for entry e, in ascending order, row · entries + i for
  /// each list whose i-th entry is e. Duplicates occur twice. Elements after the last place are not written.
  TensorView places;
  /// The number of keys, or blocks; entries below 0 or ≥ limit are skipped.
  std::int64_t limit = 0;
  /// Optional workspace, written: dense (heads, room + limit). Without it the library uses workspace of the stream.
  TensorView scratch = {};
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const TransposeListsArguments& arguments);

struct OperationState;

/// The kernel on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class TransposeLists {
 public:
  /// Transposes lists on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the
  /// kernel there. Later calls only launch, also under capture. Throws Error invalid_argument, whose field is the argument's
  /// name, before anything is launched; not_prepared under capture if the kernel is not loaded; launch_failed.
  void operator()(const TransposeListsArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what transpose_lists() throws.
  void prepare() const;

  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  friend TransposeLists transpose_lists(const Context& context);
  explicit TransposeLists(std::shared_ptr<const OperationState> state) : state_(std::move(state)) {}
  struct NoSpec {};
  TransposeLists(const NoSpec&, std::shared_ptr<const OperationState> state) : state_(std::move(state)) {}

  std::shared_ptr<const OperationState> state_;
};

/// The kernel, compiled or loaded from the cache, and loaded onto the current device. Asking again is a look-up without locks.
/// Thread safe. Throws Error unsupported_device, compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
TransposeLists transpose_lists(const Context& context = default_context());

}  // namespace jit
