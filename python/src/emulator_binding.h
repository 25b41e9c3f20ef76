// The emulator's bindings; jit_attention/emulator.py builds its classes on them.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_emulator(nanobind::module_& module);

}  // namespace jit::python
