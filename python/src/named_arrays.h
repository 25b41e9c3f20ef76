// Arrays for masks and scores, by the caller's names.
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

/// The arrays of a dict when the call was made. They stay alive as long as this object, even if the dict
/// changes.
class NamedArrays {
 public:
  /// None is an empty dict. Throws a Python TypeError that names `argument` unless it is a dict with names as
  /// keys and, unless `may_be_none`, no values of None.
  explicit NamedArrays(nb::handle dict, const char* argument = "tensors", bool may_be_none = false);

  auto begin() const { return arrays_.begin(); }
  auto end() const { return arrays_.end(); }
  std::size_t size() const { return arrays_.size(); }
  /// Whether an array has this name.
  bool has(std::string_view name) const;

 private:
  std::vector<NamedArray> arrays_;
};

/// Arrays with positions of queries and keys; each may be None.
struct PositionInputs {
  nb::handle q_positions, k_positions, global_seqlens;
};

/// `tensors`, None or a dict, merged with the given positions. Throws Error invalid_argument for a position
/// that `tensors` already has.
nb::object with_positions(nb::handle tensors, const PositionInputs& positions);

}  // namespace jit::python
