// Arrays of the idle driver's GPU (driver.cpp), read as PyTorch's tensors are: a table of C functions, and the questions
// that are asked of tensors beside it. They have no memory behind their addresses.
#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/dlpack_abi.h"

namespace nb = nanobind;
namespace dlpack = jit::python::dlpack;

namespace {

struct IdleArray {
  std::uintptr_t address = 0;
  dlpack::DataType type = {};
  std::vector<std::int64_t> shape, strides;

  dlpack::Tensor tensor() {
    return {.data = reinterpret_cast<void*>(address),
            .device = {dlpack::cuda, 0},
            .ndim = static_cast<std::int32_t>(shape.size()),
            .dtype = type,
            .shape = shape.data(),
            .strides = strides.data(),
            .byte_offset = 0};
  }
};

// Each array lies in a piece of addresses of its own, aligned to 256 bytes.
std::uintptr_t next_address() {
  static std::uintptr_t address = std::uintptr_t{1} << 45;
  return address += std::uintptr_t{1} << 36;
}

IdleArray make_array(dlpack::DataType type, std::vector<std::int64_t> shape) {
  IdleArray array{.address = next_address(), .type = type, .shape = std::move(shape), .strides = {}};
  std::int64_t stride = 1;
  for (auto size = array.shape.rbegin(); size != array.shape.rend(); ++size) {
    array.strides.insert(array.strides.begin(), stride);
    stride *= *size;
  }
  return array;
}

dlpack::DataType type_of(const std::string& name) {
  if (name == "bf16") return {dlpack::bfloat, 16, 1};
  if (name == "fp32") return {dlpack::floating, 32, 1};
  if (name == "uint8") return {dlpack::unsigned_int, 8, 1};
  if (name == "int32") return {dlpack::signed_int, 32, 1};
  if (name == "int64") return {dlpack::signed_int, 64, 1};
  throw nb::value_error("an idle array is bf16, fp32, uint8, int32 or int64");
}

int borrow(void* object, dlpack::Tensor* out) {
  *out = nb::inst_ptr<IdleArray>(nb::handle(static_cast<PyObject*>(object)))->tensor();
  return 0;
}

int current_work_stream(dlpack::DeviceType, std::int32_t, void** out) {
  *out = nullptr;
  return 0;
}

struct Managed : dlpack::ManagedTensorVersioned {
  IdleArray array;
};

int allocate(dlpack::Tensor* prototype, dlpack::ManagedTensorVersioned** out, void*,
             void (*)(void*, const char*, const char*)) {
  auto* managed = new Managed;
  managed->array = make_array(prototype->dtype, {prototype->shape, prototype->shape + prototype->ndim});
  managed->version = {1, 3};
  managed->flags = 0;
  managed->manager = nullptr;
  managed->deleter = [](dlpack::ManagedTensorVersioned* pointer) { delete static_cast<Managed*>(pointer); };
  managed->tensor = managed->array.tensor();
  *out = managed;
  return 0;
}

int to_object(dlpack::ManagedTensorVersioned* stolen, void** out) {
  auto* managed = static_cast<Managed*>(stolen);
  *out = nb::cast(std::move(managed->array)).release().ptr();
  delete managed;
  return 0;
}

constinit dlpack::ExchangeApi exchange = {.version = {1, 3},
                                          .previous = nullptr,
                                          .allocate = allocate,
                                          .to_managed = nullptr,
                                          .to_object = to_object,
                                          .borrow = borrow,
                                          .current_work_stream = current_work_stream};

// A capsule of the array, for callers that ask for one.
nb::object to_capsule(nb::object self) {
  auto* managed = new Managed;
  managed->array = nb::cast<IdleArray&>(self);
  managed->version = {1, 3};
  managed->flags = 0;
  managed->manager = nullptr;
  managed->deleter = [](dlpack::ManagedTensorVersioned* pointer) { delete static_cast<Managed*>(pointer); };
  managed->tensor = managed->array.tensor();
  return nb::steal(PyCapsule_New(managed, "dltensor_versioned", [](PyObject* capsule) {
    if (void* unused = PyCapsule_GetPointer(capsule, "dltensor_versioned"))
      delete static_cast<Managed*>(static_cast<dlpack::ManagedTensorVersioned*>(unused));
    PyErr_Clear();
  }));
}

}  // namespace

NB_MODULE(idle_arrays, module) {
  nb::class_<IdleArray> type(module, "IdleArray",
                             "An array of the idle driver's GPU: numbers, and no memory.");
  type.def(
          "__init__",
          [](IdleArray* self, const std::string& dtype, std::vector<std::int64_t> shape) {
            new (self) IdleArray(make_array(type_of(dtype), std::move(shape)));
          },
          nb::arg("dtype"), nb::arg("shape"))
      .def_prop_ro("requires_grad", [](const IdleArray&) { return false; })
      .def_prop_ro("shape", [](const IdleArray& self) { return nb::tuple(nb::cast(self.shape)); })
      .def("is_neg", [](const IdleArray&) { return false; })
      .def("__dlpack_device__", [](const IdleArray&) { return nb::make_tuple(2, 0); })
      .def(
          "__dlpack__", [](nb::object self, nb::handle, nb::handle) { return to_capsule(self); },
          nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none());
  module.def("is_grad_enabled", [] { return false; });  // as in engines, which infer
  type.attr("__dlpack_c_exchange_api__") = nb::capsule(&exchange, "dlpack_exchange_api");
}
