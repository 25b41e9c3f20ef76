// Kernels that can be read.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// The class Kernel, and the functions that make one without a GPU: compile and candidate_configs.
void bind_kernel(nanobind::module_& module);

}  // namespace jit::python
