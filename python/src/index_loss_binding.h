// The loss of an indexer, and its gradients.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

void bind_index_loss(nanobind::module_& module);

}  // namespace jit::python
