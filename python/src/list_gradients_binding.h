// Gradients of attention over key lists for ja.sparse.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_list_gradients(nanobind::module_& module);

}  // namespace jit::python
