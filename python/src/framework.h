// The library that an array comes from: how its arrays are read, where its work goes, and how it makes new
// ones.
#pragma once

#include <nanobind/nanobind.h>

#include "dlpack_abi.h"

namespace jit::python {

namespace nb = nanobind;

/// What is known of one array type. Found once per type and kept.
struct Framework {
  /// The type's C functions; null: `adapter` does it in Python.
  const dlpack::ExchangeApi* exchange = nullptr;
  /// An object of jit_attention._frameworks.
  nb::object adapter;
};

/// Throws a Python TypeError that names the argument when `array` is none.
const Framework& framework_of(nb::handle array, const char* argument);

}  // namespace jit::python
