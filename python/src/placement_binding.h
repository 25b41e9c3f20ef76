// Placements: which rank computes which queries.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_placement(nanobind::module_& module);

}  // namespace jit::python
