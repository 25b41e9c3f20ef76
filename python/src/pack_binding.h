// Packs: all kernels that some problems need, in one file.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds jit_attention.write_pack.
void bind_pack(nanobind::module_& module);

}  // namespace jit::python
