#include "function.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <structmember.h>

namespace jit::python {
namespace {

// Immutable, and in no reference cycle. Written for the limited API, as the wheel for all Pythons needs.
struct Function {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* native;
  const Documentation* documentation;
};

const Function& function_of(PyObject* self) { return *reinterpret_cast<Function*>(self); }

nb::module_ keywords() { return nb::module_::import_("jit_attention._keywords"); }

// Replaces the error of a call whose arguments do not match the parameters; keeps other errors.
void explain(const Documentation& called, std::size_t positional, PyObject* names) {
  nb::python_error raised;
  nb::object sentence = nb::none();
  try {
    sentence = keywords().attr("wrong_call")(called.name, called.parameters, positional,
                                             names != nullptr ? nb::borrow(names) : nb::make_tuple());
  } catch (nb::python_error&) {  // the first error is more informative
  }
  if (sentence.is_none()) {
    raised.restore();
  } else {
    PyErr_SetObject(PyExc_TypeError, sentence.ptr());
  }
}

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
  const Function& function = function_of(self);
  PyObject* const result = PyObject_Vectorcall(function.native, arguments, count, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) [[unlikely]]
    explain(*function.documentation, static_cast<std::size_t>(PyVectorcall_NARGS(count)), names);
  return result;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_DECREF(function_of(self).native);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) return Py_NewRef(self);
  // Python calls methods without binding them (Py_TPFLAGS_METHOD_DESCRIPTOR); this binds those that are
  // stored.
  try {
    return nb::module_::import_("types")
        .attr("MethodType")(nb::borrow(self), nb::borrow(object))
        .release()
        .ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyObject* name_of(PyObject* self, void*) {
  const std::string_view name = function_of(self).documentation->name;
  return PyUnicode_FromString(name.substr(name.rfind('.') + 1).data());
}

PyObject* qualified_name_of(PyObject* self, void*) {
  return PyUnicode_FromString(function_of(self).documentation->name);
}

PyObject* text_of(PyObject* self, void*) {
  return PyUnicode_FromString(function_of(self).documentation->text);
}

PyObject* signature_of(PyObject* self, void*) {
  try {
    return keywords().attr("signature_of")(function_of(self).documentation->parameters).release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyObject* native_signature_of(PyObject* self, void*) {
  return PyObject_GetAttrString(function_of(self).native, "__nb_signature__");
}

PyObject* repr_of(PyObject* self) {
  return PyUnicode_FromFormat("<function jit_attention.%s>", function_of(self).documentation->name);
}

// Pickled by name.
PyObject* reduce(PyObject* self, PyObject*) { return qualified_name_of(self, nullptr); }

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Function, vectorcall), READONLY, nullptr}, {}};
PyGetSetDef attributes[] = {{"__name__", name_of, nullptr, nullptr, nullptr},
                            {"__qualname__", qualified_name_of, nullptr, nullptr, nullptr},
                            {"__doc__", text_of, nullptr, nullptr, nullptr},
                            {"__signature__", signature_of, nullptr, nullptr, nullptr},
                            {"__nb_signature__", native_signature_of, nullptr, nullptr, nullptr},
                            {}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {}};

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

// The type's module is the one in which its instances are found.
PyTypeObject* type() {
  static PyTypeObject* const made = [] {
    PyType_Slot slots[] = {{Py_tp_members, members},
                           {Py_tp_getset, attributes},
                           {Py_tp_methods, methods},
                           {Py_tp_repr, slot(repr_of)},
                           {Py_tp_descr_get, slot(bind)},
                           {Py_tp_dealloc, slot(deallocate)},
                           {Py_tp_call, slot(PyVectorcall_Call)},
                           {}};
    PyType_Spec spec = {"jit_attention.function", sizeof(Function), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                            Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                        slots};
    PyObject* const fresh = PyType_FromSpec(&spec);
    if (fresh == nullptr) throw nb::python_error();
    return reinterpret_cast<PyTypeObject*>(fresh);
  }();
  return made;
}

}  // namespace

const Documentation* find_documentation(std::string_view name) {
  const Documentation* const end = documentation + documentation_size;
  const Documentation* const found =
      std::find_if(documentation, end, [&](const Documentation& row) { return row.name == name; });
  return found == end ? nullptr : found;
}

const char* documented(std::string_view name) {
  if (const Documentation* const row = find_documentation(name)) return row->text;
  throw std::logic_error("_core.pyi does not document " + std::string(name));
}

void publish(nb::handle scope, const char* name, const Documentation& documentation) {
  nb::object native = nb::getattr(scope, name);
  PyObject* const fresh = PyType_GenericAlloc(type(), 0);
  if (fresh == nullptr) throw nb::python_error();
  auto* const function = reinterpret_cast<Function*>(fresh);
  function->vectorcall = call;
  function->native = native.release().ptr();
  function->documentation = &documentation;
  nb::setattr(scope, name, nb::steal(fresh));
}

}  // namespace jit::python
