// Arrays of any framework as views, without a copy.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

#include <jit/attention.h>
#include <nanobind/nanobind.h>

#include "dlpack_abi.h"
#include "framework.h"

namespace jit::python {

/// An array that was given, or made for a result.
struct Array {
  TensorView view;
  dlpack::Device device = {dlpack::cpu, 0};
  dlpack::DataType type = {};  ///< as the framework has it: bits of bf16 may be integers there
  bool read_only = false;
  std::shared_ptr<void> owner;  ///< keeps the memory; empty where the Python object does
  bool is_number = false;       ///< has no dimension; the view has one, of one element

  bool on_gpu() const { return device.type == dlpack::cuda || device.type == dlpack::cuda_managed; }
};

/// Whether work on arrays is recorded for gradients. With forward mode arrays may carry tangents, recorded or not.
enum class Gradients { may_be_recorded, are_none, may_be_forward };

/// Where an array lies. Copies nothing and waits for nothing.
dlpack::Device device_of(const GivenArray& given);

/// Ordinal of the device that holds the address; 0 for null. Throws Error invalid_argument for memory of no
/// device.
int device_of_address(const char* argument, std::uintptr_t address);

/// Whether the framework leaves it to others to put their work on its current stream, rather than to make
/// their stream wait when an array is exchanged.
inline bool orders_work_by_stream(const GivenArray& given) { return given.framework.exchange != nullptr; }

/// An array that lies on `device`, as seen by work on `stream` of it: where the framework has streams of its own, `stream`
/// is made to wait for them. `dtype` is what 16-bit integers stand for. Throws Error invalid_argument that names the
/// argument, and whatever an array that lies elsewhere throws. Of those without gradients it is not asked whether they
/// want some.
Array import_array(const GivenArray& given, dlpack::Device device, Stream stream,
                   std::optional<DType> dtype = {}, Gradients gradients = Gradients::may_be_recorded);

/// A framework's present way with gradients; where it cannot be asked, it may record work.
Gradients gradients_of(const Framework& framework);

/// The framework's current stream on the device; null for CPU arrays and frameworks that have none.
Stream current_stream(const Framework& framework, dlpack::Device device);

/// The stream that a number or an object with __cuda_stream__ names. Throws Error invalid_argument for
/// anything else.
Stream stream_of(nb::handle stream);

/// "GPU 1", "CPU memory".
std::string to_string(dlpack::Device device);

/// The largest of 16, 8, 4, 2 and 1 that all rows of these are aligned to; views of nothing do not count.
int common_alignment(std::initializer_list<const TensorView*> views);

/// The first `count` rows, as a slice of Python has them: all, where there are fewer.
inline void keep_first(TensorView& view, std::int64_t count) {
  if (view.rank != 0 && view.shape[0] > count) view.shape[0] = count;
}

[[noreturn]] void refuse(const char* argument, const std::string& message);

}  // namespace jit::python
