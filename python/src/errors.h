// Errors of the library as Python exceptions.
#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

namespace jit::python {

namespace nb = nanobind;

/// From here on a jit::Error that leaves a function of this module is an exception of jit_attention.errors
/// with the same fields.
void translate_errors();

/// Any text of the library as a str: bytes that are no UTF-8, as in names of files or in a piece of what the user
/// wrote, become U+FFFD.
nb::str readable(std::string_view text);

}  // namespace jit::python
