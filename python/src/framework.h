// The library that an array comes from: how its arrays are read, where its work goes, and how it makes new
// ones.
#pragma once

#include <nanobind/nanobind.h>

#include "dlpack_abi.h"

namespace jit::python {

namespace nb = nanobind;

/// Facts about one array type. Found once per type and kept.
struct Framework {
  /// The type's C functions; null: `adapter` does it in Python.
  const dlpack::ExchangeApi* exchange = nullptr;
  /// Beside C functions, what they do not tell: the type's `is_neg`, and whether work is recorded for gradients, a
  /// function of the module that the type or one of its bases is from. Empty: there is none.
  nb::object is_neg;
  nb::object is_grad_enabled;
  /// `autograd.forward_ad` of that module, of derivatives that are computed along with results. Empty: there is none.
  nb::object forward_ad;
  /// An object of jit_attention._frameworks, and what it says of all its arrays.
  nb::object adapter;
  nb::object exporter;                  ///< its `export`; empty: arrays speak for themselves
  bool speaks_dlpack = false;           ///< the type has __dlpack__ and __dlpack_device__
  bool writable = true;                 ///< results may be written to arrays that the caller gives
  bool needs_complete_results = false;  ///< there is no stream that later work is ordered by
};

/// Throws a Python TypeError that names the argument when `array` is none.
const Framework& framework_of(nb::handle array, const char* argument);

/// An array as a caller gives it, borrowed, and the name that the caller knows it by.
struct GivenArray {
  /// Throws a Python TypeError that names the argument when `object` is no array.
  GivenArray(nb::handle object, const char* argument)
      : object(object), argument(argument), framework(framework_of(object, argument)) {}

  nb::handle object;
  const char* argument;
  const Framework& framework;
};

}  // namespace jit::python
