// The arrays of one call of an operation beside attention: read, checked to be in one place, and, on an emulated device,
// copied into its memory and back.
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

/// One call: arrays are bound to the views that the library takes, then `stage` and `launch`, all with the interpreter
/// lock. Every method that reads arrays throws Error invalid_argument, or a Python TypeError, that names the argument.
class OperationCall {
 public:
  /// The call is where `first` is, an array known as `name`; `stream` is None, a number, or an object with
  /// __cuda_stream__. `sixteen_bits` is what 16-bit integers stand for. CPU memory is that of emulated device `cpu_device`.
  OperationCall(nb::handle first, const char* name, nb::handle stream, std::optional<DType> sixteen_bits,
                int cpu_device = 0)
      : arrays_(first, name, stream, cpu_device), sixteen_bits_(sixteen_bits) {}

  int device() const { return arrays_.device(); }
  Stream stream() const { return arrays_.stream(); }

  /// Throws Error invalid_argument where what 16-bit integers stand for was given, and `first` holds another type.
  void check_dtype(const TensorView& first, const char* name) const;

  /// Reads an array into `view`, which must stay where it is, and returns how its framework has the elements; None leaves
  /// the view empty.
  std::optional<dlpack::DataType> read(nb::handle array, const char* name, TensorView& view);
  /// Reads an array that the operation also writes.
  void write(nb::handle array, const char* name, TensorView& view);
  /// Reads an array that the operation also writes if it has `rank` dimensions.
  void read_or_write(nb::handle array, const char* name, TensorView& view, int rank);
  /// A new dense array like `first`, to write to; `type` is how its framework has elements of `dtype`, where that is not
  /// plain. Its number, for `result`.
  std::size_t make(DType dtype, std::span<const std::int64_t> shape, TensorView& view,
                   std::optional<dlpack::DataType> type = {});
  /// The object that the caller gets for a new array.
  nb::object result(std::size_t number) const { return made_.at(number).result(); }

  /// On an emulated device: calls `check`, then gives the views copies of the arrays there. Of copies nobody could tell
  /// which share memory, so that the arguments are checked first; elsewhere the launch does.
  template <class Check>
  void stage(const Check& check) {
    if (!arrays_.emulated()) return;
    check();
    stage_all();
  }
  /// Calls `launch(context)` on the call's device without the interpreter lock, waits and copies back where results must
  /// be complete.
  template <class Launch>
  void launch(const Launch& launch) const {
    const Context& context = context_for(std::nullopt);
    without_lock([&] {
      const CurrentDevice scope(device());
      launch(context);
      complete();
    });
  }

  /// The last of this alone, behind a launch of the caller's own, without the interpreter lock.
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

/// A size of an array as a field of a spec.
int small_size(const TensorView& view, int dimension, const char* name);

}  // namespace jit::python
