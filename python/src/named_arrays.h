// The arrays that a caller gives by name, for masks and scores to read.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

struct NamedArray {
  const char* name;  ///< UTF-8, of `key`
  nb::object key;
  nb::object object;
};

/// What a dict held when it was given, kept as long as this is: whatever becomes of the dict meanwhile.
class NamedArrays {
 public:
  /// None is an empty dict. Throws a Python TypeError, which speaks of `argument`, for anything but a dict with names
  /// as keys and, unless it `may_be_none`, something as each value.
  explicit NamedArrays(nb::handle dict, const char* argument = "tensors", bool may_be_none = false);

  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }
  std::size_t size() const { return arrays_.size(); }

 private:
  std::vector<NamedArray> arrays_;
};

}  // namespace jit::python
