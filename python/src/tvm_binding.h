// Functions of apache-tvm-ffi.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Adds the function that registers those of apache-tvm-ffi.
void bind_tvm(nanobind::module_& module);

}  // namespace jit::python
