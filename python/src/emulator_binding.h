// The emulator's public face for jit_attention/emulator.py, which makes Python's of it.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_emulator(nanobind::module_& module);

}  // namespace jit::python
