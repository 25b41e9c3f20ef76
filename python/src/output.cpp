#include "output.h"

#include <algorithm>
#include <vector>

#include <jit/device_buffer.h>
#include <jit/dtype.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

namespace jit::python {
namespace {

dlpack::DataType dlpack_type_of(DType dtype) {
  const DTypeFacts& row = facts(dtype);
  return {static_cast<std::uint8_t>(row.kind), static_cast<std::uint8_t>(row.bytes * 8), 1};
}

void set_python_error(void*, const char* kind, const char* message) {
  const nb::gil_scoped_acquire gil;
  PyObject* type = PyObject_GetAttrString(nb::module_::import_("builtins").ptr(), kind);
  if (type == nullptr) PyErr_Clear();
  PyErr_SetString(type != nullptr ? type : PyExc_RuntimeError, message);
  Py_XDECREF(type);
}

Output allocate(const dlpack::ExchangeApi& api, dlpack::Device device, DType dtype, dlpack::DataType type,
                std::span<const std::int64_t> shape) {
  std::int64_t sizes[max_rank] = {};
  std::ranges::copy(shape, sizes);
  dlpack::Tensor prototype{.data = nullptr,
                           .device = device,
                           .ndim = static_cast<std::int32_t>(shape.size()),
                           .dtype = type,
                           .shape = sizes,
                           .strides = nullptr,
                           .byte_offset = 0};
  dlpack::ManagedTensorVersioned* managed = nullptr;
  if (api.allocate(&prototype, &managed, nullptr, set_python_error) != 0) throw nb::python_error();
  Output output;
  output.array.device = managed->tensor.device;
  TensorView& view = output.array.view;
  view.data = static_cast<char*>(managed->tensor.data) + managed->tensor.byte_offset;
  view.dtype = dtype;
  view.rank = managed->tensor.ndim;
  std::int64_t dense = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = managed->tensor.shape[i];
    view.strides[i] = managed->tensor.strides != nullptr ? managed->tensor.strides[i] : dense;
    dense *= view.shape[i];
  }
  void* object = nullptr;
  if (api.to_object(managed, &object) != 0) throw nb::python_error();
  output.object = nb::steal(static_cast<PyObject*>(object));
  return output;
}

}  // namespace

Output new_output(const GivenArray& like, dlpack::Device device, Stream stream, DType dtype,
                  std::span<const std::int64_t> shape, std::optional<dlpack::DataType> type) {
  const Framework& framework = like.framework;
  if (framework.exchange != nullptr)
    return allocate(*framework.exchange, device, dtype, type.value_or(dlpack_type_of(dtype)), shape);
  nb::list sizes;
  for (const std::int64_t size : shape) sizes.append(size);
  Output output;
  const std::string name(to_string(dtype));
  output.object = framework.adapter.attr("empty")(like.object, nb::tuple(sizes), name);
  output.array = import_array(GivenArray(output.object, "out"), device, stream, dtype);
  output.finish = framework.adapter.attr("finish");
  return output;
}

Output given_output(const GivenArray& given, dlpack::Device device, Stream stream, std::optional<DType> dtype,
                    Gradients gradients) {
  if (!given.framework.writable)
    refuse(given.argument, "is an array that cannot be written; take the returned one");
  Output output;
  output.array = import_array(given, device, stream, dtype, gradients);
  if (output.array.read_only) refuse(given.argument, "is read-only");
  output.object = nb::borrow(given.object);
  output.given = true;
  return output;
}

nb::object device_array(int device, nb::tuple shape, const std::string& dtype_name) {
  const DType dtype = parse_dtype(dtype_name);
  std::vector<std::size_t> sizes;
  std::size_t bytes = static_cast<std::size_t>(size_of(dtype));
  for (const nb::handle size : shape) {
    sizes.push_back(nb::cast<std::size_t>(size));
    bytes *= sizes.back();
  }
  auto* buffer = new DeviceBuffer(device, bytes);
  const nb::capsule owner(buffer, [](void* pointer) noexcept { delete static_cast<DeviceBuffer*>(pointer); });
  const dlpack::DataType type = dlpack_type_of(dtype);
  return nb::cast(nb::ndarray<nb::array_api>(buffer->data(), sizes.size(), sizes.data(), owner, nullptr,
                                             nb::dlpack::dtype{type.code, type.bits, type.lanes},
                                             dlpack::cuda, device));
}

nb::object device_array_beside(std::uintptr_t address, nb::tuple shape, const std::string& dtype) {
  return device_array(device_of_address("q", address), shape, dtype);
}

}  // namespace jit::python
