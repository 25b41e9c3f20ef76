// Errors of the library as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// From here on a jit::Error that leaves a function of this module is an exception of jit_attention.errors
/// with the same fields.
void translate_errors();

}  // namespace jit::python
