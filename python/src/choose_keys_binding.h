// The keys that an indexer scores highest.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_choose_keys(nanobind::module_& module);

}  // namespace jit::python
