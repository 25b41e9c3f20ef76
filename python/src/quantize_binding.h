// jit_attention._core.quantize_qkv.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_quantize(nanobind::module_& module);

}  // namespace jit::python
