// jit_attention.append.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_append(nanobind::module_& module);

}  // namespace jit::python
