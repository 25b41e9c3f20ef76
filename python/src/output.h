// Results: arrays of the caller's own framework.
#pragma once

#include <span>

#include "array.h"

namespace jit::python {

/// An array to write to. `finish` turns it into what the caller gets, once the work is done or on its stream.
struct Output {
  Array array;
  nb::object object;       ///< what `array` views
  nb::object finish = {};  ///< a Python function of `object`; empty: `object` is what the caller gets
  bool given = false;      ///< by the caller, rather than new

  nb::object result() const { return finish.is_valid() ? finish(object) : object; }
};

/// A new dense array of `like`'s framework, on its device. Its contents are arbitrary. `type` is how the
/// framework has elements of `dtype`, where that is not plain.
Output new_output(const GivenArray& like, dlpack::Device device, Stream stream, DType dtype,
                  std::span<const std::int64_t> shape, std::optional<dlpack::DataType> type = {});

/// The caller's own, as import_array reads it. Throws Error invalid_argument when it may not be written.
Output given_output(const GivenArray& given, dlpack::Device device, Stream stream, std::optional<DType> dtype,
                    Gradients gradients = Gradients::may_be_recorded);

/// Memory of a device for frameworks whose arrays cannot be written: an object that speaks DLPack.
nb::object device_array(int device, nb::tuple shape, const std::string& dtype);
/// A new array on the device that holds `address`.
nb::object device_array_beside(std::uintptr_t address, nb::tuple shape, const std::string& dtype);

}  // namespace jit::python
