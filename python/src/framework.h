// The framework of an array: reading its arrays, its current stream, and making new arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "dlpack_abi.h"

namespace jit::python {

namespace nb = nanobind;

/// Facts about one array type, determined once.
struct Framework {
  /// The type's C functions; null: the Python `adapter` replaces them.
  const dlpack::ExchangeApi* exchange = nullptr;
  /// Facts that C functions lack: the type's `is_neg`, and the module function that tells whether gradients
  /// are recorded. Empty: none.
  nb::object is_neg;
  nb::object is_grad_enabled;
  /// The module's `autograd.forward_ad`, for forward-mode derivatives. Empty: none.
  nb::object forward_ad;
  /// An adapter of jit_attention._frameworks, and its properties.
  nb::object adapter;
  nb::object exporter;                  ///< its `export`; empty: arrays need none
  bool speaks_dlpack = false;           ///< the type has __dlpack__ and __dlpack_device__
  bool writable = true;                 ///< results may be written to arrays that the caller gives
  bool needs_complete_results = false;  ///< no stream orders later work
};

/// Throws a Python TypeError that names the argument when `array` is none.
const Framework& framework_of(nb::handle array, const char* argument);

/// A caller's array, borrowed, and its argument name.
struct GivenArray {
  /// Throws a Python TypeError that names the argument when `object` is no array.
  GivenArray(nb::handle object, const char* argument)
      : object(object), argument(argument), framework(framework_of(object, argument)) {}

  nb::handle object;
  const char* argument;
  const Framework& framework;
};

}  // namespace jit::python
