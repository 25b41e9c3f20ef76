// Bindings of readable kernels.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds class Kernel, and the functions that create one without a GPU: compile and candidate_configs.
void bind_kernel(nanobind::module_& module);

}  // namespace jit::python
