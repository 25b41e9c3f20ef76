// Errors of the library as Python exceptions.
#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

/// Makes every jit::Error that leaves a function of this module an exception of jit_attention.errors with the
/// same fields.
void translate_errors();

/// A str from any text of the library: invalid UTF-8, as in file names or user input, becomes U+FFFD.
nb::str readable(std::string_view text);

}  // namespace jit::python
