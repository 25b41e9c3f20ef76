#include "tvm_binding.h"

#include <memory>

#include <jit/error.h>
#include <jit/tvm_ffi.h>
#include <nanobind/stl/string.h>

namespace jit::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_tvm(nb::module_& module) {
  module.def(
      "register_tvm_ffi",
      [](const std::string& library) {
        jit_error* error = nullptr;
        if (jit_tvm_ffi_register(library.c_str(), &error) == JIT_OK) return;
        const std::unique_ptr<jit_error, decltype(&jit_error_free)> owner(error, &jit_error_free);
        throw Error(ErrorCode::invalid_argument, error->stage, error->field, error->message);
      },
      "library"_a);
}

}  // namespace jit::python
