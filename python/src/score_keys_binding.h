// ja.score_keys.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_score_keys(nanobind::module_& module);

}  // namespace jit::python
