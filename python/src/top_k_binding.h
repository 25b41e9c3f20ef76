// ja.top_k.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_top_k(nanobind::module_& module);

}  // namespace jit::python
