/// @file
/// Unions of the lists of keys of neighboring queries, for calls whose spec has list_queries: keys that several of them chose
/// are read once for all.
///
/// @code
/// const jit::KeyUnionSpec spec{.queries = 2};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// const jit::KeyUnionArguments arguments{.indices = allocate(jit::DType::int32, {4, 1, 8}),
///                                        .lists = allocate(jit::DType::int32, {2, 1, 16}),
///                                        .members = allocate(jit::DType::int32, {2, 1, 16}),
///                                        .list_counts = allocate(jit::DType::int32, {2, 1}),
///                                        .limit = 64};
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::KeyUnion unite = jit::key_union(spec);
/// unite.prepare();  // loads the kernel on the current device, ahead of a capture
/// unite(arguments, stream);
/// assert(!unite.source().empty() && unite.spec().queries == 2);
/// @endcode
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <jit/context.h>
#include <jit/error.h>
#include <jit/spec.h>
#include <jit/stream.h>
#include <jit/tensor.h>

namespace jit {

/// The problem that a kernel is specialized for.
struct KeyUnionSpec {
  int queries = 8;  ///< rows that share a list, from 2 to 32

  bool operator==(const KeyUnionSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const KeyUnionSpec& spec);

/// The tensors of one call, all int32. The memory is the caller's.
struct KeyUnionArguments {
  TensorView indices;  ///< (rows, heads, entries): the list of each row, any strides but the last, which is 1
  TensorView counts =
      {};  ///< optional, (rows, heads), any strides: entries that count; cut to what there are
  TensorView
      lists;  ///< written, dense (⌈rows / queries⌉, heads, room): the union, ascending, without duplicates
  TensorView members;  ///< written, likewise: bit i is set if the i-th row of the group has the entry
  TensorView
      list_counts;  ///< written, dense (⌈rows / queries⌉, heads): size of the union; the rest is not written
  std::int64_t limit = 0;  ///< number of keys, or blocks; entries below 0 or ≥ limit are skipped
};

/// Checks the arguments of a call, as the call itself does: room is at least min(limit, queries · entries), so that nothing is
/// left out. It needs no device and reads no tensor. Throws Error invalid_argument, whose field is the argument's name.
void check_arguments(const KeyUnionSpec& spec, const KeyUnionArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class KeyUnion {
 public:
  /// Makes unions on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the
  /// kernel there. Later calls only launch, also under capture. Throws Error invalid_argument, whose field is the argument's
  /// name, before anything is launched; not_prepared under capture if the kernel is not loaded; launch_failed.
  void operator()(const KeyUnionArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what key_union() throws.
  void prepare() const;

  /// The spec that it was made for.
  const KeyUnionSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  KeyUnion(const KeyUnionSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  KeyUnionSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
KeyUnion key_union(const KeyUnionSpec& spec, const Context& context = default_context());

}  // namespace jit
