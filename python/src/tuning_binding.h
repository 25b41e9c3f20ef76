// tune(): measures configs ahead of time.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_tuning(nanobind::module_& module);

}  // namespace jit::python
