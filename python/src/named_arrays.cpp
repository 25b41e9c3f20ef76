#include "named_arrays.h"

#include <fmt/format.h>

namespace jit::python {

NamedArrays::NamedArrays(nb::handle dict, const char* argument, bool may_be_none) {
  if (dict.is_none()) return;
  if (!PyDict_Check(dict.ptr()))
    throw nb::type_error(fmt::format("{} must be a dict of names and arrays, or None", argument).c_str());
  arrays_.reserve(static_cast<std::size_t>(PyDict_Size(dict.ptr())));
  for (const auto& [key, value] : nb::cast<nb::dict>(dict)) {
    const char* name = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), nullptr) : nullptr;
    if (name == nullptr) {
      PyErr_Clear();
      throw nb::type_error(
          fmt::format("{} must have names, each a str, not {}", argument, nb::repr(key).c_str()).c_str());
    }
    if (value.is_none() && !may_be_none)
      throw nb::type_error(fmt::format("{}[\"{}\"] is None; it must be an array", argument, name).c_str());
    arrays_.push_back({name, nb::borrow(key), nb::borrow(value)});
  }
}

}  // namespace jit::python
