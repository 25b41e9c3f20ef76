// The folder of compiled kernels.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// What jit_attention.cache is made of.
void bind_cache(nanobind::module_& module);

}  // namespace jit::python
