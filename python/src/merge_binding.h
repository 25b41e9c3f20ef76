// jit_attention.merge.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_merge(nanobind::module_& module);

}  // namespace jit::python
