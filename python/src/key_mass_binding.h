// ja.key_mass.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_key_mass(nanobind::module_& module);

}  // namespace jit::python
