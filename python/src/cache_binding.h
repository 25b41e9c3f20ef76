// The folder of compiled kernels.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds the functions of jit_attention.cache.
void bind_cache(nanobind::module_& module);

}  // namespace jit::python
