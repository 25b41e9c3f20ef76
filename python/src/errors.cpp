#include "errors.h"

#include <exception>

#include <jit/error.h>
#include <nanobind/stl/string.h>

namespace jit::python {

namespace nb = nanobind;

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const nb::object exception =
          nb::module_::import_("jit_attention.errors")
              .attr("error_of_code")(std::string(to_string(error.code())), error.stage(), error.field(),
                                     error.message(), error.native_code(), error.log(), error.source());
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    }
  });
}

}  // namespace jit::python
