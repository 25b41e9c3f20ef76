// Which tiles of scores a mask leaves.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_tile_map(nanobind::module_& module);

}  // namespace jit::python
