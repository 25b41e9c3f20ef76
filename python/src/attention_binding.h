// attention(), prepare() and its result.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// attention, prepare and the class Attention.
void bind_attention(nanobind::module_& module);

}  // namespace jit::python
