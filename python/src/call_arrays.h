// The device and arrays of a call, shared by attention and the other operations.
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

/// The arrays of one call, all on one device. All but `complete` needs the interpreter lock. Methods that
/// read arrays throw Error invalid_argument, or a Python TypeError, that names the argument.
class CallArrays {
 public:
  /// The call runs on the device of `first`, the argument `name`; for CPU memory on `cpu_device`. `stream` is
  /// None, for the current one of its framework, a number, or an object with __cuda_stream__.
  CallArrays(nb::handle first, const char* name, nb::handle stream, int cpu_device = 0);

  int device() const { return device_; }
  Stream stream() const { return stream_; }
  /// Whether the device is emulated, so that arrays are copied to its memory.
  bool emulated() const { return emulated_; }

  /// Reads an array for work on the stream, and keeps its memory alive. `sixteen_bits`: meaning of 16-bit
  /// integers.
  Array read(nb::handle object, const char* name, std::optional<DType> sixteen_bits);
  /// Converts an array that the call writes.
  Output write(nb::handle object, const char* name, std::optional<DType> sixteen_bits);
  /// A new dense array of the first array's framework. `type`: the framework's type for `dtype`, if not the
  /// plain one.
  Output make(DType dtype, std::span<const std::int64_t> shape,
              std::optional<dlpack::DataType> type = {}) const;

  /// After the launch: waits when results must be complete.
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
  bool complete_ = false;                             // results must be complete when returned
  Gradients gradients_ = Gradients::may_be_recorded;  // mode of the first array's framework
  Stream stream_ = nullptr;
  const dlpack::ExchangeApi* ordered_after_ = nullptr;  // the stream follows its current stream, or is it
  std::vector<std::shared_ptr<void>> owners_;           // of memory that callers' objects do not own
};

}  // namespace jit::python
