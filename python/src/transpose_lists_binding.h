// Transposition of key lists.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_transpose_lists(nanobind::module_& module);

}  // namespace jit::python
