// Tile maps: the tiles of scores that a mask keeps.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_tile_map(nanobind::module_& module);

}  // namespace jit::python
