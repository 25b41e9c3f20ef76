#include "given.h"

#include <fmt/format.h>
#include <jit/error.h>

#include "array.h"

namespace jit::python {
namespace {

constexpr Py_ssize_t longest_shown = 40;

[[noreturn]] void refuse_type(nb::handle object, const char* name, const char* wanted) {
  PyErr_Clear();
  throw nb::type_error(fmt::format("{} must be {}, not {}", name, wanted, shown(object)).c_str());
}

// A Python int from an int or a NumPy integer.
nb::object index_of(nb::handle object, const char* name) {
  if (!PyIndex_Check(object.ptr()) || PyBool_Check(object.ptr())) refuse_type(object, name, "an int");
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) refuse_type(object, name, "an int");
  return index;
}

template <class Number>
[[noreturn]] void refuse_range(nb::handle index, const char* name, Number least, Number most) {
  PyErr_Clear();
  refuse(name, fmt::format("is {}; it must be from {} to {}", shown(index), least, most));
}

}  // namespace

std::string type_of(nb::handle object) {
  const auto name = nb::cast<std::string>(object.type().attr("__name__"));
  return nb::cast<std::string>(object.type().attr("__module__")) == "numpy" ? "numpy." + name : name;
}

std::string shown(nb::handle object) {
  const bool is_number = PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr());
  if (object.is_none() || is_number || PyUnicode_Check(object.ptr())) {
    const nb::object text = nb::steal(PyObject_Repr(object.ptr()));
    if (!text.is_valid()) {
      PyErr_Clear();  // Python refuses to print integers of thousands of digits
    } else if (PyUnicode_GetLength(text.ptr()) <= longest_shown) {
      return nb::cast<std::string>(text);
    }
  }
  return "a " + type_of(object);
}

bool truth_of(nb::handle object, const char* name) {
  if (!PyBool_Check(object.ptr())) refuse_type(object, name, "a bool");
  return object.ptr() == Py_True;
}

double real_of(nb::handle object, const char* name) {
  if (PyFloat_CheckExact(object.ptr())) return PyFloat_AsDouble(object.ptr());
  const double number = PyBool_Check(object.ptr()) ? -1.0 : PyFloat_AsDouble(object.ptr());
  if (PyBool_Check(object.ptr()) || (number == -1.0 && PyErr_Occurred()))
    refuse_type(object, name, "a number");
  return number;
}

std::string text_of(nb::handle object, const char* name) {
  if (!PyUnicode_Check(object.ptr())) refuse_type(object, name, "a str");
  std::string text;
  if (!nb::try_cast(object, text)) refuse_type(object, name, "a str that UTF-8 can hold");
  return text;
}

std::filesystem::path path_of(nb::handle object, const char* name) {
  const nb::object path = nb::steal(PyOS_FSPath(object.ptr()));
  if (!path.is_valid()) refuse_type(object, name, "a str or another path");
  std::filesystem::path converted;
  if (!nb::try_cast(path, converted)) refuse_type(object, name, "a path that the file system can hold");
  return converted;
}

std::vector<std::string> texts_of(nb::handle object, const char* name) {
  std::vector<std::string> texts;
  if (PyUnicode_Check(object.ptr())) refuse_type(object, name, "a list of str");
  for (nb::handle item : items_of(object, name)) {
    texts.push_back(text_of(item, fmt::format("each of {}", name).c_str()));
  }
  return texts;
}

std::array<int, 3> three_of(nb::handle object, const char* name) {
  std::array<int, 3> three{};
  std::size_t count = 0;
  for (nb::handle item : items_of(object, name)) {
    if (count < three.size())
      three[count] = static_cast<int>(
          whole_of(item, name, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
    ++count;
  }
  if (count != three.size()) refuse(name, fmt::format("has {} numbers; it must have 3", count));
  return three;
}

nb::iterable items_of(nb::handle object, const char* name) {
  const nb::object items = nb::steal(PyObject_GetIter(object.ptr()));
  if (!items.is_valid()) refuse_type(object, name, "a list");
  return nb::borrow<nb::iterable>(object);
}

std::int64_t whole_of(nb::handle object, const char* name, std::int64_t least, std::int64_t most) {
  const nb::object index = PyLong_CheckExact(object.ptr()) ? nb::borrow(object) : index_of(object, name);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || number < least || number > most) refuse_range(index, name, least, most);
  return number;
}

std::uint64_t natural_of(nb::handle object, const char* name) {
  const nb::object index = index_of(object, name);
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (PyErr_Occurred())
    refuse_range(index, name, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
  return number;
}

}  // namespace jit::python
