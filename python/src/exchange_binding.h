// jit_attention.exchange_merge, and what belongs to it.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_exchange(nanobind::module_& module);

}  // namespace jit::python
