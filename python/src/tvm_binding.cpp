#include "tvm_binding.h"

#include <memory>

#include <jit/tvm_ffi.h>
#include <nanobind/stl/string.h>

#include "tvm/operations.h"

namespace jit::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_tvm(nb::module_& module) {
  module.def(
      "register_tvm_ffi",
      [](const std::string& library) {
        jit_error* error = nullptr;
        jit_tvm_ffi_register(library.c_str(), &error);
        tvm::throw_if(error);
      },
      "library"_a);
}

}  // namespace jit::python
