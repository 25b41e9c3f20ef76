// Results: arrays of the caller's framework.
#pragma once

#include <span>

#include "array.h"

namespace jit::python {

/// An output array. `finish` converts it to the caller's result, once the work is done or is on its stream.
struct Output {
  Array array;
  nb::object object;       ///< the object behind `array`
  nb::object finish = {};  ///< a Python function of `object`; empty: returns `object`
  bool given = false;      ///< the caller's array rather than a new one

  nb::object result() const { return finish.is_valid() ? finish(object) : object; }
};

/// A new dense array of `like`'s framework, on its device. Its contents are arbitrary. `type`: the
/// framework's type for `dtype`, if not the plain one.
Output new_output(const GivenArray& like, dlpack::Device device, Stream stream, DType dtype,
                  std::span<const std::int64_t> shape, std::optional<dlpack::DataType> type = {});

/// The caller's array, read by import_array. Throws Error invalid_argument when it is read-only.
Output given_output(const GivenArray& given, dlpack::Device device, Stream stream, std::optional<DType> dtype,
                    Gradients gradients = Gradients::may_be_recorded);

/// Device memory for frameworks with immutable arrays: an object with DLPack.
nb::object device_array(int device, nb::tuple shape, const std::string& dtype);
/// A new array on the device of `address`.
nb::object device_array_beside(std::uintptr_t address, nb::tuple shape, const std::string& dtype);

}  // namespace jit::python
