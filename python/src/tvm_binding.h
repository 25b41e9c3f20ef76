// Functions of apache-tvm-ffi.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds the function that registers apache-tvm-ffi functions.
void bind_tvm(nanobind::module_& module);

}  // namespace jit::python
