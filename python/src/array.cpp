#include "array.h"

#include <algorithm>
#include <bit>
#include <string>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <nanobind/stl/string.h>

namespace jit::python {
namespace {

static_assert(static_cast<int>(NumberKind::signed_integer) == dlpack::signed_int &&
              static_cast<int>(NumberKind::unsigned_integer) == dlpack::unsigned_int &&
              static_cast<int>(NumberKind::floating) == dlpack::floating &&
              static_cast<int>(NumberKind::bfloat) == dlpack::bfloat);

std::optional<DType> dtype_of_dlpack(dlpack::DataType type, std::optional<DType> sixteen_bits) {
  if (type.lanes != 1) return {};
  if (type.code == dlpack::boolean && type.bits == 8) return DType::uint8;
  for (const DTypeFacts& row : dtype_table()) {
    if (type.code == static_cast<std::uint8_t>(row.kind) && type.bits == row.bytes * 8) return row.dtype;
  }
  const bool is_integer = type.code == dlpack::signed_int || type.code == dlpack::unsigned_int;
  return is_integer && type.bits == 16 ? sixteen_bits : std::nullopt;
}

// "float64 elements", or a description of a type without a name.
std::string elements_of(dlpack::DataType type) {
  const char* kind = type.code == dlpack::signed_int     ? "int"
                     : type.code == dlpack::unsigned_int ? "uint"
                     : type.code == dlpack::floating     ? "float"
                                                         : nullptr;
  return kind == nullptr || type.lanes != 1 ? "elements" : fmt::format("{}{} elements", kind, type.bits);
}

Array array_of(const dlpack::Tensor& tensor, const char* argument, std::optional<DType> sixteen_bits) {
  if (tensor.ndim < 0 || tensor.ndim > max_rank)
    refuse(argument, fmt::format("has {} dimensions; at most {} are possible", tensor.ndim, max_rank));
  const std::optional<DType> dtype = dtype_of_dlpack(tensor.dtype, sixteen_bits);
  if (!dtype) {
    const bool is_integer =
        tensor.dtype.code == dlpack::signed_int || tensor.dtype.code == dlpack::unsigned_int;
    refuse(argument,
           is_integer && tensor.dtype.bits == 16 && tensor.dtype.lanes == 1
               ? "holds 16-bit integers; say with dtype=\"bf16\" or \"fp16\" what they stand for"
               : fmt::format("has {}, which are none of bf16, fp16, fp32, fp8, int32, int64, uint8 and bool",
                             elements_of(tensor.dtype)));
  }
  Array array;
  array.device = tensor.device;
  array.type = tensor.dtype;
  array.view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  array.view.dtype = *dtype;
  array.view.rank = tensor.ndim;
  const bool empty = std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
  std::int64_t dense = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    array.view.shape[i] = tensor.shape[i];
    // Strides of an empty array are arbitrary; NumPy exports zeros.
    array.view.strides[i] = tensor.strides != nullptr && !empty ? tensor.strides[i] : dense;
    if (__builtin_mul_overflow(dense, tensor.shape[i], &dense))
      refuse(argument, "has more elements than 64 bits can count");
  }
  if (tensor.ndim == 0) {  // a number, such as a learned temperature: an array of one element
    array.is_number = true;
    array.view.rank = 1;
    array.view.shape[0] = array.view.strides[0] = 1;
  }
  return array;
}

template <class Managed>
std::shared_ptr<void> take(Managed* managed, nb::handle capsule, const char* used_name) {
  PyCapsule_SetName(capsule.ptr(), used_name);  // from here on this object owns the memory
  return {managed, [](void* pointer) {
            auto* tensor = static_cast<Managed*>(pointer);
            if (tensor->deleter == nullptr) return;
            const nb::gil_scoped_acquire gil;  // deleters of Python frameworks touch Python objects
            tensor->deleter(tensor);
          }};
}

Array array_of_capsule(nb::handle capsule, const char* argument, std::optional<DType> sixteen_bits) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    std::shared_ptr<void> owner = take(managed, capsule, "used_dltensor_versioned");
    if (managed->version.major != 1)
      refuse(argument,
             fmt::format("speaks DLPack {}; versions before 2 are understood", managed->version.major));
    Array array = array_of(managed->tensor, argument, sixteen_bits);
    array.read_only = (managed->flags & dlpack::read_only_flag) != 0;
    array.owner = std::move(owner);
    return array;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    std::shared_ptr<void> owner = take(managed, capsule, "used_dltensor");
    Array array = array_of(managed->tensor, argument, sixteen_bits);
    array.owner = std::move(owner);
    return array;
  }
  refuse(argument, "has a __dlpack__ that returns no DLPack capsule");
}

// DLPack's number of a stream; None for devices without streams.
nb::object stream_number(dlpack::Device device, Stream stream) {
  if (device.type != dlpack::cuda && device.type != dlpack::cuda_managed) return nb::none();
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  return nb::int_(number == 0 ? 1 : number);  // 1: the default stream
}

// Cached Python constants for each call. Never destroyed: Python may end before static objects are destroyed.
struct DlpackWords {
  PyObject* name = PyUnicode_InternFromString("__dlpack__");
  PyObject* both = nb::make_tuple(nb::str("stream"), nb::str("max_version")).release().ptr();
  PyObject* stream_alone = nb::make_tuple(nb::str("stream")).release().ptr();
  PyObject* version = nb::make_tuple(1, 3).release().ptr();
};

nb::object call_dlpack(nb::handle array, dlpack::Device device, Stream stream) {
  static const DlpackWords& words = *new DlpackWords;
  const nb::object number = stream_number(device, stream);
  PyObject* arguments[] = {array.ptr(), number.ptr(), words.version};
  const std::size_t self_alone = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
  nb::object capsule = nb::steal(PyObject_VectorcallMethod(words.name, arguments, self_alone, words.both));
  if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();  // only producers before DLPack 1 lack max_version
    capsule = nb::steal(PyObject_VectorcallMethod(words.name, arguments, self_alone, words.stream_alone));
  }
  if (!capsule.is_valid()) throw nb::python_error();
  return capsule;
}

dlpack::DataType type_of_typestr(const std::string& typestr) {
  if (typestr.size() < 3 || typestr[0] == '>') return {255, 0, 1};
  const int bytes = typestr[2] - '0';
  const std::uint8_t bits = static_cast<std::uint8_t>(typestr.size() == 3 && bytes <= 8 ? bytes * 8 : 0);
  switch (typestr[1]) {
    case 'f':
      return {dlpack::floating, bits, 1};
    case 'i':
      return {dlpack::signed_int, bits, 1};
    case 'u':
    case 'V':  // NumPy's type of bf16 without ml_dtypes
      return {dlpack::unsigned_int, bits, 1};
    case 'b':
      return {dlpack::boolean, 8, 1};
    default:
      return {255, 0, 1};
  }
}

// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
Array array_of_interface(nb::dict interface, const char* argument, Stream stream,
                         std::optional<DType> sixteen_bits) {
  const nb::tuple shape = nb::cast<nb::tuple>(interface["shape"]);
  const nb::tuple data = nb::cast<nb::tuple>(interface["data"]);
  const std::int64_t ndim = static_cast<std::int64_t>(nb::len(shape));
  if (ndim > max_rank)
    refuse(argument, fmt::format("has {} dimensions; at most {} are possible", ndim, max_rank));
  std::int64_t sizes[max_rank] = {}, strides[max_rank] = {};
  dlpack::Tensor tensor{};
  tensor.dtype = type_of_typestr(nb::cast<std::string>(interface["typestr"]));
  const nb::object byte_strides = interface.contains("strides") ? interface["strides"] : nb::none();
  for (int i = 0; i < ndim; ++i) {
    sizes[i] = nb::cast<std::int64_t>(shape[i]);
    if (byte_strides.is_none()) continue;
    const auto bytes = nb::cast<std::int64_t>(byte_strides[i]);
    const int element = std::max(1, tensor.dtype.bits / 8);
    if (bytes % element != 0) refuse(argument, "has strides that are no multiple of its elements' size");
    strides[i] = bytes / element;
  }
  const auto address = nb::cast<std::uintptr_t>(data[0]);
  tensor.data = reinterpret_cast<void*>(address);
  tensor.device = {dlpack::cuda, device_of_address(argument, address)};
  tensor.ndim = static_cast<int>(ndim);
  tensor.shape = sizes;
  tensor.strides = byte_strides.is_none() ? nullptr : strides;
  Array array = array_of(tensor, argument, sixteen_bits);
  array.read_only = nb::cast<bool>(data[1]);
  if (interface.contains("stream") && !interface["stream"].is_none()) {
    const auto number = nb::cast<std::uintptr_t>(interface["stream"]);  // 1: the default stream
    const CurrentDevice scope(tensor.device.id);
    wait_for(stream, reinterpret_cast<Stream>(number == 1 ? 0 : number));
  }
  return array;
}

bool is_true(nb::object flag) {
  if (!flag.is_valid()) PyErr_Clear();  // not every framework has it
  return flag.ptr() == Py_True;
}

// Whether a framework records operations for gradients; true when unknown.
bool records_work(const Framework& framework) {
  if (!framework.is_grad_enabled.is_valid()) return true;
  const nb::object enabled = nb::steal(PyObject_CallNoArgs(framework.is_grad_enabled.ptr()));
  if (!enabled.is_valid()) throw nb::python_error();
  return enabled.ptr() != Py_False;
}

// The framework's level of forward-mode differentiation; negative: none.
long forward_level(const Framework& framework) {
  static PyObject* const current_level = PyUnicode_InternFromString("_current_level");
  if (!framework.forward_ad.is_valid()) return -1;
  const nb::object level = nb::steal(PyObject_GetAttr(framework.forward_ad.ptr(), current_level));
  long number = -1;
  if (!level.is_valid() || !nb::try_cast(level, number)) PyErr_Clear();  // not every version has it
  return number;
}

// Whether a tangent would be lost. Inside an operator's own rule PyTorch cannot tell, so it may.
bool may_have_tangent(const GivenArray& given) {
  try {
    return !given.framework.forward_ad.attr("unpack_dual")(given.object).attr("tangent").is_none();
  } catch (const nb::python_error&) {
    return true;
  }
}

// Refuses gradients and tangents, which the table of C functions does not show and which would be lost.
void require_no_gradient(const GivenArray& given, Gradients gradients) {
  const auto& [array, argument, framework] = given;
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  if (gradients == Gradients::are_none) return;
  if (gradients == Gradients::may_be_forward && may_have_tangent(given)) {
    refuse(argument,
           "has a tangent, and forward-mode differentiation has no rule for attention: give the primal of "
           "torch.autograd.forward_ad.unpack_dual outside of the dual level, or use backward() or "
           "torch.autograd.grad");
  }
  if (is_true(nb::steal(PyObject_GetAttr(array.ptr(), requires_grad))) && records_work(framework)) {
    refuse(argument,
           "requires grad: jit_attention.torch.attention has gradients, of q, k, v, sinks and the tensors "
           "that a score reads; else compute under "
           "torch.no_grad(), or give detach()");
  }
}

// Refuses PyTorch's lazily negated views, such as imaginary parts of conjugates. Integers and 8-bit types
// have none.
void require_no_negation(const GivenArray& given, dlpack::DataType type) {
  const auto& [array, argument, framework] = given;
  const bool may_be = type.code == dlpack::floating || type.code == dlpack::bfloat;
  PyObject* const arguments[] = {array.ptr()};
  if (may_be && framework.is_neg.is_valid() &&
      is_true(nb::steal(PyObject_Vectorcall(framework.is_neg.ptr(), arguments, 1, nullptr))))
    refuse(argument, "is a view that negates its elements; give resolve_neg()");
}

// Converts an exception of a framework into an error that names the argument.
template <class Read>
auto reading(const char* argument, const Read& read) {
  try {
    return read();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const std::string text = nb::cast<std::string>(nb::str(error.value()));
    refuse(argument, fmt::format("cannot be read: {}: {}", nb::type_name(error.type()).c_str(),
                                 text.substr(0, text.find('\n'))));
  } catch (const std::bad_cast&) {
    refuse(argument,
           "describes itself wrongly: the fields of its protocol are not of the types that they must be");
  }
}

}  // namespace

void refuse(const char* argument, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "arguments", argument, fmt::format("{}: {}", argument, message));
}

std::string to_string(dlpack::Device device) {
  switch (device.type) {
    case dlpack::cuda:
    case dlpack::cuda_managed:
      return fmt::format("GPU {}", device.id);
    case dlpack::cpu:
    case dlpack::cuda_host:
      return "CPU memory";
    default:
      return fmt::format("memory of DLPack device type {}", static_cast<int>(device.type));
  }
}

int device_of_address(const char* argument, std::uintptr_t address) {
  if (address == 0) return 0;
  const std::optional<int> ordinal = jit::device_of_address(address);
  if (!ordinal) refuse(argument, fmt::format("lies at {:#x}, which is memory of no device", address));
  return *ordinal;
}

dlpack::Device device_of(const GivenArray& given) {
  const nb::handle array = given.object;
  const char* const argument = given.argument;
  const Framework& framework = given.framework;
  return reading(argument, [&]() -> dlpack::Device {
    if (framework.exchange != nullptr) {
      dlpack::Tensor tensor{};
      if (framework.exchange->borrow(array.ptr(), &tensor) != 0) throw nb::python_error();
      return tensor.device;
    }
    if (framework.exporter.is_valid()) framework.exporter(array);  // refuses unreadable arrays
    if (framework.speaks_dlpack || nb::hasattr(array, "__dlpack_device__")) {
      const nb::object pair = array.attr("__dlpack_device__")();
      return {static_cast<dlpack::DeviceType>(nb::cast<int>(pair[0])), nb::cast<std::int32_t>(pair[1])};
    }
    const nb::dict interface = nb::cast<nb::dict>(array.attr("__cuda_array_interface__"));
    return {dlpack::cuda,
            device_of_address(argument, nb::cast<std::uintptr_t>(interface["data"][nb::int_(0)]))};
  });
}

Gradients gradients_of(const Framework& framework) {
  if (forward_level(framework) >= 0) return Gradients::may_be_forward;
  return records_work(framework) ? Gradients::may_be_recorded : Gradients::are_none;
}

Array import_array(const GivenArray& given, dlpack::Device device, Stream stream, std::optional<DType> dtype,
                   Gradients gradients) {
  const nb::handle array = given.object;
  const char* const argument = given.argument;
  const Framework& framework = given.framework;
  return reading(argument, [&]() -> Array {
    if (framework.exchange != nullptr) {
      require_no_gradient(given, gradients);
      dlpack::Tensor tensor{};
      if (framework.exchange->borrow(array.ptr(), &tensor) != 0) throw nb::python_error();
      require_no_negation(given, tensor.dtype);
      return array_of(tensor, argument, dtype);
    }
    if (!framework.exporter.is_valid() && framework.speaks_dlpack)
      return array_of_capsule(call_dlpack(array, device, stream), argument, dtype);
    // NumPy has no bf16: its adapter returns the bits and the type's name.
    nb::object bits = nb::borrow(array);
    std::optional<DType> meaning;
    if (framework.exporter.is_valid()) {
      const nb::tuple exported = nb::cast<nb::tuple>(framework.exporter(array));
      bits = exported[0];
      if (!exported[1].is_none()) meaning = parse_dtype(nb::cast<std::string>(exported[1]));
    }
    const std::optional<DType> sixteen_bits = meaning ? meaning : dtype;
    Array result = nb::hasattr(bits, "__dlpack__")
                       ? array_of_capsule(call_dlpack(bits, device, stream), argument, sixteen_bits)
                       : array_of_interface(nb::cast<nb::dict>(bits.attr("__cuda_array_interface__")),
                                            argument, stream, sixteen_bits);
    if (meaning && size_of(*meaning) == size_of(result.view.dtype)) result.view.dtype = *meaning;
    return result;
  });
}

Stream current_stream(const Framework& framework, dlpack::Device device) {
  if (device.type != dlpack::cuda && device.type != dlpack::cuda_managed) return nullptr;
  void* stream = nullptr;
  if (framework.exchange != nullptr) {
    if (framework.exchange->current_work_stream(dlpack::cuda, device.id, &stream) != 0)
      throw nb::python_error();
  } else {
    stream = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(framework.adapter.attr("stream")(device.id)));
  }
  return static_cast<Stream>(stream);
}

Stream stream_of(nb::handle stream) {
  const auto wrong = [&] {
    refuse("stream",
           fmt::format("is {}; it must be an int from 0 on, an object with __cuda_stream__, or None",
                       nb::repr(stream).c_str()));
  };
  nb::object number = nb::borrow(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) {
    const nb::object pair = stream.attr("__cuda_stream__")();
    if (!PyTuple_Check(pair.ptr()) || nb::len(pair) != 2) wrong();
    number = pair[1];
  }
  if (PyBool_Check(number.ptr()) || !PyIndex_Check(number.ptr())) wrong();
  const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
  const std::size_t value = index.is_valid() ? PyLong_AsSize_t(index.ptr()) : 0;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    wrong();
  }
  return reinterpret_cast<Stream>(value);
}

int common_alignment(std::initializer_list<const TensorView*> views) {
  std::uint64_t bits = 16;
  for (const TensorView* view : views) {
    if (!view->is_present()) continue;
    bits |= reinterpret_cast<std::uintptr_t>(view->data);
    for (int i = 0; i + 1 < view->rank; ++i) {
      if (view->shape[i] > 1)
        bits |=
            static_cast<std::uint64_t>(view->strides[i]) * static_cast<std::uint64_t>(size_of(view->dtype));
    }
  }
  return 1 << std::countr_zero(bits);
}

}  // namespace jit::python
