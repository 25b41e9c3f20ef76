// Masses of listed keys.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_list_mass(nanobind::module_& module);

}  // namespace jit::python
