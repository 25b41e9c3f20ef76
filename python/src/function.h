// Functions as Python's tools expect them: nanobind's have no signature, and answer a wrong keyword with all parameters.
#pragma once

#include <nanobind/nanobind.h>

#include "documentation.h"

namespace jit::python {

namespace nb = nanobind;

/// Replaces `scope.name`, a function or method of nanobind, by one that calls it and has `__signature__`, `__doc__` and
/// `__reduce__`. A call that does not fit its parameters raises TypeError with the sentence of
/// jit_attention._keywords.wrong_call.
void publish(nb::handle scope, const char* name, const Documentation& documentation);

}  // namespace jit::python
