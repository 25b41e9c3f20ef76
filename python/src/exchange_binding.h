// jit_attention.exchange_merge and its classes.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_exchange(nanobind::module_& module);

}  // namespace jit::python
