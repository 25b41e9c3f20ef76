// The arrays of one call of an operation other than attention: read, checked to be on one device, and copied
// to an emulated device and back.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <jit/device.h>
#include <jit/error.h>
#include <jit/tensor.h>
#include <nanobind/nanobind.h>

#include "call_arrays.h"
#include "process.h"
#include "staging.h"

namespace jit::python {

/// One call: bind arrays to the library's views, then `stage` and `launch`, all with the interpreter lock.
/// Methods that read arrays throw throws Error invalid_argument, or a Python TypeError, that names the
/// argument.
class OperationCall {
 public:
  /// The call runs on the device of `first`, the argument `name`; `stream` is None, a number, or an object
  /// with __cuda_stream__. `sixteen_bits`: meaning of 16-bit integers. CPU memory belongs to emulated device
  /// `cpu_device`.
  OperationCall(nb::handle first, const char* name, nb::handle stream, std::optional<DType> sixteen_bits,
                int cpu_device = 0)
      : arrays_(first, name, stream, cpu_device), sixteen_bits_(sixteen_bits) {}

  int device() const { return arrays_.device(); }
  Stream stream() const { return arrays_.stream(); }

  /// Throws Error invalid_argument when a meaning of 16-bit integers was given, but `first` has another type.
  void check_dtype(const TensorView& first, const char* name) const;

  /// Reads an array into `view`, whose address must stay valid, and returns its framework's type; None leaves
  /// the view empty.
  std::optional<dlpack::DataType> read(nb::handle array, const char* name, TensorView& view);
  /// Binds an array that the operation reads and writes.
  void write(nb::handle array, const char* name, TensorView& view);
  /// Binds an array; the operation also writes it if it has `rank` dimensions.
  void read_or_write(nb::handle array, const char* name, TensorView& view, int rank);
  /// A new dense output like `first`; `type`: the framework's type for `dtype`, if not the plain one. Returns
  /// its index, for `result`.
  std::size_t make(DType dtype, std::span<const std::int64_t> shape, TensorView& view,
                   std::optional<dlpack::DataType> type = {});
  /// The object that the caller gets for a new array.
  nb::object result(std::size_t number) const { return made_.at(number).result(); }

  /// On an emulated device: calls `check`, then replaces the views by copies there. Shared memory is not
  /// visible in copies, so the arguments are checked first; on GPUs the launch checks them.
  template <class Check>
  void stage(const Check& check) {
    if (!arrays_.emulated()) return;
    check();
    stage_all();
  }
  /// Calls `launch(context)` on the call's device without the interpreter lock; waits and copies back when
  /// results must be complete.
  template <class Launch>
  void launch(const Launch& launch) const {
    const Context& context = context_for(std::nullopt);
    without_lock([&] {
      const CurrentDevice scope(device());
      launch(context);
      complete();
    });
  }

  /// The wait and copy of `launch`, for a separate launch by the caller; without the interpreter lock.
  void complete() const;

 private:
  struct Bound {
    TensorView* view;
    bool is_written;
    Staged staged = {};
  };
  void stage_all();
  void bind(TensorView& view, const Array& array, bool is_written);

  CallArrays arrays_;
  std::optional<DType> sixteen_bits_;
  std::vector<Bound> bound_;  // on an emulated device
  std::vector<Output> made_;
};

/// An array's size as a spec's field.
int small_size(const TensorView& view, int dimension, const char* name);

}  // namespace jit::python
