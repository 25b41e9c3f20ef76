// Packs: one file with all kernels for some problems.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds jit_attention.write_pack.
void bind_pack(nanobind::module_& module);

}  // namespace jit::python
