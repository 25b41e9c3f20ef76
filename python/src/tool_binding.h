// The command-line tool as part of the module.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_tool(nanobind::module_& module);

}  // namespace jit::python
