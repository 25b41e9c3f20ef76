// Functions with the attributes that Python's tools expect: nanobind's lack signatures, and answer a wrong
// keyword by listing all parameters.
#pragma once

#include <nanobind/nanobind.h>

#include "documentation.h"

namespace jit::python {

namespace nb = nanobind;

/// Replaces nanobind's function or method `scope.name` by a wrapper with `__signature__`, `__doc__` and
/// `__reduce__`. A call with wrong arguments raises TypeError with the message of
/// jit_attention._keywords.wrong_call.
void publish(nb::handle scope, const char* name, const Documentation& documentation);

}  // namespace jit::python
