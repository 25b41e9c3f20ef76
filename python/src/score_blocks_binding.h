// ja.score_blocks.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_score_blocks(nanobind::module_& module);

}  // namespace jit::python
