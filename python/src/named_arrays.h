// The arrays that a caller gives by name, for masks and scores to read.
#pragma once

#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

struct NamedArray {
  const char* name;  ///< UTF-8, of `key`
  nb::object key;
  nb::object object;
};

/// The arrays of a dict at the time of the call. They stay alive as long as this object, however the dict
/// changes.
class NamedArrays {
 public:
  /// None is an empty dict. Throws a Python TypeError, which speaks of `argument`, for anything but a dict with names
  /// as keys and, unless it `may_be_none`, something as each value.
  explicit NamedArrays(nb::handle dict, const char* argument = "tensors", bool may_be_none = false);

  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }
  std::size_t size() const { return arrays_.size(); }
  /// Whether one has this name.
  bool has(std::string_view name) const;

 private:
  std::vector<NamedArray> arrays_;
};

/// Arrays that say where queries and keys stand, each of which may be None.
struct PositionInputs {
  nb::handle q_positions, k_positions, global_seqlens;
};

/// `tensors`, None or a dict, together with those that are given. Throws Error invalid_argument for one that is among
/// `tensors`, too.
nb::object with_positions(nb::handle tensors, const PositionInputs& positions);

}  // namespace jit::python
