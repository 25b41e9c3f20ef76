#include "named_arrays.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "array.h"

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

bool NamedArrays::has(std::string_view name) const {
  return std::any_of(arrays_.begin(), arrays_.end(),
                     [&](const NamedArray& array) { return array.name == name; });
}

nb::object with_positions(nb::handle tensors, const PositionInputs& positions) {
  const std::pair<const char*, nb::handle> inputs[] = {{"q_positions", positions.q_positions},
                                                       {"k_positions", positions.k_positions},
                                                       {"global_seqlens", positions.global_seqlens}};
  const bool has_some = std::any_of(std::begin(inputs), std::end(inputs),
                                    [](const auto& input) { return !input.second.is_none(); });
  if (!has_some || (!tensors.is_none() && !PyDict_Check(tensors.ptr()))) return nb::borrow(tensors);
  nb::dict all;
  if (!tensors.is_none()) all.update(nb::borrow<nb::dict>(tensors));
  for (const auto& [name, array] : inputs) {
    if (array.is_none()) continue;
    if (all.contains(name))
      refuse(name, "was given twice: by itself, and among tensors; leave one of the two out");
    all[name] = array;
  }
  return all;
}

}  // namespace jit::python
