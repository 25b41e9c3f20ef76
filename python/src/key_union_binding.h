// Unions of key lists for ja.sparse.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_key_union(nanobind::module_& module);

}  // namespace jit::python
