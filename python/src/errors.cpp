#include "errors.h"

#include <exception>

#include <jit/error.h>
#include <nanobind/stl/string.h>

namespace jit::python {

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const nb::object exception =
          nb::module_::import_("jit_attention.errors")
              .attr("error_of_code")(readable(to_string(error.code())), readable(error.stage()),
                                     readable(error.field()), readable(error.message()), error.native_code(),
                                     readable(error.log()), readable(error.source()));
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    }
  });
}

nb::str readable(std::string_view text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

}  // namespace jit::python
