// Gradients from lists of keys, as ja.sparse computes them.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_list_gradients(nanobind::module_& module);

}  // namespace jit::python
