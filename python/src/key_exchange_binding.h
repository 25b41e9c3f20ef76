// Keys that arrive from other devices during attention.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_key_exchange(nanobind::module_& module);

}  // namespace jit::python
