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
Output new_output(nb::handle like, dlpack::Device device, Stream stream, DType dtype,
                  std::span<const std::int64_t> shape, std::optional<dlpack::DataType> type = {});

/// The caller's own. Throws Error invalid_argument when it may not be written.
Output given_output(nb::handle array, const char* argument, Stream stream, std::optional<DType> dtype);

/// Memory of a device for frameworks whose arrays cannot be written: an object that speaks DLPack.
nb::object device_array(int device, nb::tuple shape, const std::string& dtype);
/// The same, on the device that holds an address.
nb::object device_array_beside(std::uintptr_t address, nb::tuple shape, const std::string& dtype);

/// Whether the framework has no stream that its later work is ordered by: results must be complete before it
/// sees them.
bool needs_complete_results(nb::handle like);

}  // namespace jit::python
