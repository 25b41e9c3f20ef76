// jit_attention._core.xla_handlers.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_xla(nanobind::module_& module);

}  // namespace jit::python
