// Keys that come from other devices while attention computes.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_key_exchange(nanobind::module_& module);

}  // namespace jit::python
