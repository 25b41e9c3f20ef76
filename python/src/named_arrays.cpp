#include "named_arrays.h"

namespace jit::python {

NamedArrays::NamedArrays(nb::handle dict) {
  if (dict.is_none()) return;
  if (!PyDict_Check(dict.ptr())) throw nb::type_error("tensors must be a dict of names and arrays, or None");
  arrays_.reserve(static_cast<std::size_t>(PyDict_Size(dict.ptr())));
  for (const auto& [key, value] : nb::cast<nb::dict>(dict)) {
    const char* name = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8(key.ptr()) : nullptr;
    if (name == nullptr) {
      PyErr_Clear();
      throw nb::type_error("tensors must be a dict whose keys are names");
    }
    arrays_.push_back({name, nb::borrow(key), nb::borrow(value)});
  }
}

}  // namespace jit::python
