// Where a call is computed, and its arrays: what calls of attention and those of the operations beside it share.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <jit/tensor.h>
#include <nanobind/nanobind.h>

#include "array.h"
#include "output.h"

namespace jit::python {

/// The arrays of one call, all in one place. Needs the interpreter lock but for `complete`. Methods that read arrays throw
/// Error invalid_argument, or a Python TypeError, that names the argument.
class CallArrays {
 public:
  /// The call is where `first` lies, an array known as `name`; on `cpu_device` when that is CPU memory. `stream` is None,
  /// for the current one of its framework, a number, or an object with __cuda_stream__.
  CallArrays(nb::handle first, const char* name, nb::handle stream, int cpu_device = 0);

  int device() const { return device_; }
  Stream stream() const { return stream_; }
  /// Whether the device is an emulated one, whose memory the arrays are copied to.
  bool emulated() const { return emulated_; }

  /// An array as work on the stream sees it; what keeps its memory is kept. `sixteen_bits` is what 16-bit integers stand
  /// for.
  Array read(nb::handle object, const char* name, std::optional<DType> sixteen_bits);
  /// Converts an array that the call writes.
  Output write(nb::handle object, const char* name, std::optional<DType> sixteen_bits);
  /// A new dense array of the first one's framework. `type` is how that has elements of `dtype`, where that is not plain.
  Output make(DType dtype, std::span<const std::int64_t> shape,
              std::optional<dlpack::DataType> type = {}) const;

  /// After the launch: waits where results must be complete when they are handed over.
  void complete() const;

 private:
  template <class Import>
  auto here(const GivenArray& given, const Import& import) const;
  void take(const GivenArray& given, Array& array);
  Gradients gradients_of_call(const GivenArray& given) const;
  void check_place(dlpack::Device device, const char* name) const;

  GivenArray first_;
  dlpack::Device where_ = {dlpack::cpu, 0};
  int device_ = 0;
  bool emulated_ = false;
  bool complete_ = false;                             // results must be, when they are handed over
  Gradients gradients_ = Gradients::may_be_recorded;  // in the framework of the first array
  Stream stream_ = nullptr;
  const dlpack::ExchangeApi* ordered_after_ = nullptr;  // whose current stream the stream waits for, or is
  std::vector<std::shared_ptr<void>> owners_;           // of arrays that are not simply the caller's objects
};

}  // namespace jit::python
