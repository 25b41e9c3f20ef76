/// @file
/// The largest scores of each row, exactly: which keys, or blocks of keys, a query attends to.
///
/// @code
/// const jit::TensorView scores = allocate(jit::DType::fp32, {2, 1, 300});  // 2 queries, one list each, 300 keys
/// const jit::TopKArguments arguments{.scores = scores,
///                                    .indices = allocate(jit::DType::int32, {2, 1, 16}),
///                                    .counts = allocate(jit::DType::int32, {2, 1})};
/// const jit::TopKSpec spec{.k = 16};
/// jit::validate(spec);  // throws Error invalid_spec if the library does not serve it
/// jit::check_arguments(spec, arguments);  // throws Error invalid_argument, as the call does
/// const jit::TopK top_k = jit::top_k(spec);
/// top_k.prepare();  // loads the kernel on the current device, ahead of a capture
/// top_k(arguments, stream);
/// assert(!top_k.source().empty() && top_k.spec() == spec);
/// @endcode
///
/// A row sees its columns [start, end). The smaller column wins ties; −0 equals 0; NaN ranks below every number, and
/// −inf is never chosen. Columns are written in ascending order, then −1. Equal inputs give equal results.
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
struct TopKSpec {
  DType dtype = DType::fp32;  ///< of scores: fp32, bf16 or fp16
  int k = 2048;               ///< columns of a list: 1 to 2,048, for which shared memory has room
  int init_blocks = 0;   ///< so many of the first visible columns are chosen whatever their scores: 0 to k
  int local_blocks = 0;  ///< the same of the last visible columns; together at most k
  int page_size = 0;     ///< of page_table, 1 to 65,536; 0: indices are columns

  bool operator==(const TopKSpec&) const = default;  ///< member by member
};

/// Checks a spec. Throws Error invalid_spec with the first reason why the library does not serve it.
void validate(const TopKSpec& spec);

/// The tensors of one call. The memory is the caller's.
struct TopKArguments {
  TensorView scores;  ///< (rows, heads, columns), any strides whose last is 1
  TensorView starts =
      {};  ///< int32 (rows), optional: the first column that a row sees; beyond the columns: the nearest
  TensorView ends =
      {};  ///< int32 (rows), optional: the column behind the last one; an end before the start: none is seen
  /// int32 (entries, pages), with page_size: column c becomes table[row · entries / rows, c / page_size] · page_size +
  /// c % page_size, in the order of columns, and −1 where there is no such page. Rows are a multiple of entries.
  TensorView page_table = {};
  TensorView indices;  ///< written: int32 (rows, heads, k), any strides whose last is 1
  TensorView counts;   ///< written: int32 (rows, heads): how many columns were chosen
};

/// Checks the arguments of a call, as the call itself does. It needs no device and reads no tensor. Throws Error
/// invalid_argument, whose field is the argument's name.
void check_arguments(const TopKSpec& spec, const TopKArguments& arguments);

struct OperationState;

/// The kernel of one spec on every GPU. Cheap to copy: copies share the kernel. Thread safe.
class TopK {
 public:
  /// Chooses on `stream`, on the device of the current context. The first call on a device, or `prepare`, loads the
  /// kernel there. Later calls only launch, also under capture: they read no tensor and wait for nothing. Throws Error
  /// invalid_argument, whose field is the argument's name, before anything is launched; not_prepared under capture if
  /// the kernel is not loaded; launch_failed.
  void operator()(const TopKArguments& arguments, Stream stream = nullptr) const;

  /// Loads the kernel on the current device. Throws what top_k() throws.
  void prepare() const;

  /// The spec that it was made for.
  const TopKSpec& spec() const { return spec_; }
  /// The generated program.
  const std::string& source() const;

 private:
  friend struct Access;
  TopK(const TopKSpec& spec, std::shared_ptr<const OperationState> state)
      : spec_(spec), state_(std::move(state)) {}

  TopKSpec spec_;
  std::shared_ptr<const OperationState> state_;
};

/// The kernel of `spec`, compiled or loaded from the cache, and loaded onto the current device. Asking again for the same
/// spec is a look-up without locks. Thread safe. Throws Error invalid_spec before anything else; unsupported_device,
/// compile_failed, nvrtc_unavailable, driver_unavailable, load_failed, offline.
TopK top_k(const TopKSpec& spec, const Context& context = default_context());

}  // namespace jit
