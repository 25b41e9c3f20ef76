// Arrays of any framework as views, without copies.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

#include <jit/attention.h>
#include <nanobind/nanobind.h>

#include "dlpack_abi.h"
#include "framework.h"

namespace jit::python {

/// A caller's array, or a new result.
struct Array {
  TensorView view;
  dlpack::Device device = {dlpack::cpu, 0};
  dlpack::DataType type = {};  ///< the framework's type: bits of bf16 may be integers there
  bool read_only = false;
  std::shared_ptr<void> owner;  ///< keeps the memory alive; empty when the Python object does
  bool is_number = false;       ///< has no dimension; the view has one of size 1

  bool on_gpu() const { return device.type == dlpack::cuda || device.type == dlpack::cuda_managed; }
};

/// Whether operations on arrays are recorded for gradients. In forward mode, arrays may carry tangents,
/// recorded or not.
enum class Gradients { may_be_recorded, are_none, may_be_forward };

/// The device of an array. Neither copies nor waits.
dlpack::Device device_of(const GivenArray& given);

/// Ordinal of the device that holds the address; 0 for null. Throws Error invalid_argument for memory of no
/// device.
int device_of_address(const char* argument, std::uintptr_t address);

/// Whether the framework expects others to use its current stream, instead of synchronizing streams when an
/// array is exchanged.
inline bool orders_work_by_stream(const GivenArray& given) { return given.framework.exchange != nullptr; }

/// A view of an array on `device` for work on `stream`, which waits for the framework's own streams. `dtype`:
/// meaning of 16-bit integers. Throws Error invalid_argument that names the argument, and the exceptions of
/// arrays on other devices. Gradients are not checked when the framework records none.
Array import_array(const GivenArray& given, dlpack::Device device, Stream stream,
                   std::optional<DType> dtype = {}, Gradients gradients = Gradients::may_be_recorded);

/// The framework's current gradient mode; may_be_recorded when unknown.
Gradients gradients_of(const Framework& framework);

/// The framework's current stream on the device; null for CPU arrays and frameworks without streams.
Stream current_stream(const Framework& framework, dlpack::Device device);

/// The stream with this number, or of an object with __cuda_stream__. Throws Error invalid_argument for
/// anything else.
Stream stream_of(nb::handle stream);

/// "GPU 1", "CPU memory".
std::string to_string(dlpack::Device device);

/// The largest of 16, 8, 4, 2 and 1 that aligns all rows of the views; absent views do not count.
int common_alignment(std::initializer_list<const TensorView*> views);

/// Keeps at most the first `count` rows, like a Python slice.
inline void keep_first(TensorView& view, std::int64_t count) {
  if (view.rank != 0 && view.shape[0] > count) view.shape[0] = count;
}

[[noreturn]] void refuse(const char* argument, const std::string& message);

}  // namespace jit::python
