// jit_attention.attention_backward and prepare_backward.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_backward(nanobind::module_& module);

}  // namespace jit::python
