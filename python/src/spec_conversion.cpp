#include "spec_conversion.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "array.h"
#include "given.h"
#include "process.h"

namespace jit::python {
namespace {

template <class... Arguments>
[[noreturn]] void type_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw nb::type_error(fmt::format(format, std::forward<Arguments>(arguments)...).c_str());
}

// The library's value inside a Python Mask or Score.
template <class Value>
const Value& native(nb::handle object, const char* argument, const char* wanted) {
  static PyObject* const name = PyUnicode_InternFromString("_native");
  const nb::object carried = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!carried.is_valid()) PyErr_Clear();
  if (!carried.is_valid() || !nb::isinstance<Value>(carried) || !nb::inst_ready(carried))
    type_error("{} must be a {} or None, not a {}", argument, wanted, type_of(object));
  return *nb::inst_ptr<Value>(carried);  // `object` keeps it alive
}

FunctorConstant constant_of(nb::handle value, const std::string& name) {
  if (PyBool_Check(value.ptr())) return nb::cast<bool>(value);
  if (PyIndex_Check(value.ptr())) {  // int, or a NumPy integer
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    int overflow = 0;
    const long long number = index.is_valid() ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
    if (PyErr_Occurred()) throw nb::python_error();
    if (overflow != 0) {
      throw Error(ErrorCode::invalid_spec, "validate", name,
                  fmt::format("constant {}: {} does not fit into 64 bits", name, nb::str(value).c_str()));
    }
    return std::int64_t{number};
  }
  if (PyFloat_Check(value.ptr()) || nb::hasattr(value, "__float__")) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred()) throw nb::python_error();
    return number;
  }
  type_error("constant {} must be a bool, an int or a float, not a {}", name, type_of(value));
}

// The UTF-8 text of a str. Throws UnicodeEncodeError, as Python does, for surrogates.
std::string utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(size)};
}

FunctorText functor_text_of(nb::handle text) {
  FunctorText result{.name = utf8_of(text.attr("name")),
                     .body = utf8_of(text.attr("body")),
                     .classify = utf8_of(text.attr("classify")),
                     .derivative = utf8_of(text.attr("derivative"))};
  for (const nb::handle item : nb::list(text.attr("constants").attr("items")())) {
    const std::string name = utf8_of(item[0]);
    result.constants.emplace(name, constant_of(item[1], name));
  }
  for (const nb::handle item : nb::list(text.attr("tensors").attr("items")()))
    result.tensors.push_back(parse_functor_tensor(utf8_of(item[0]), utf8_of(item[1])));
  return result;
}

std::vector<FunctorText> functor_texts_of(nb::handle texts) {
  std::vector<FunctorText> result;
  for (const nb::handle text : texts) result.push_back(functor_text_of(text));
  return result;
}

template <class Value>
nb::dict tensors_of(const Value& value) {
  nb::dict names;
  for (const FunctorTensorSpec& tensor : value.tensors()) names[tensor.name.c_str()] = kind_text(tensor);
  return names;
}

// The facts of a type, by any of its names; null: unknown.
const DTypeFacts* dtype_row(nb::handle dtype) {
  if (dtype.is_none()) return nullptr;
  if (PyUnicode_Check(dtype.ptr())) {  // usually a name in this table
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(dtype.ptr(), &length);
    if (text == nullptr) PyErr_Clear();  // surrogates: no valid name
    const std::string_view name(text == nullptr ? "" : text, static_cast<std::size_t>(length));
    for (const DTypeFacts& row : dtype_table()) {
      if (row.name == name) return &row;
    }
  }
  const nb::object name = nb::module_::import_("jit_attention.functor").attr("element_type")(dtype);
  if (!PyUnicode_Check(name.ptr())) return nullptr;
  for (const DTypeFacts& row : dtype_table()) {
    if (row.name == nb::cast<std::string>(name)) return &row;
  }
  return nullptr;
}

// Each sets one field of a spec.
void set(int& member, nb::handle value, const char* field) {
  if (value.is_none() && member == 0) return;  // C++ uses 0 for None
  if (!PyIndex_Check(value.ptr()) || PyBool_Check(value.ptr()))
    type_error("{} must be an int, not a {}", field, type_of(value));
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  int overflow = 0;
  const long number = index.is_valid() ? PyLong_AsLongAndOverflow(index.ptr(), &overflow) : 0;
  if (PyErr_Occurred()) throw nb::python_error();
  if (overflow != 0 || number != static_cast<int>(number)) {
    throw Error(ErrorCode::invalid_spec, "validate", field,
                fmt::format("{}: {} is out of range", field, nb::str(value).c_str()));
  }
  member = static_cast<int>(number);
}
void set(bool& member, nb::handle value, const char* field) {
  if (!PyBool_Check(value.ptr())) type_error("{} must be a bool, not a {}", field, type_of(value));
  member = value.ptr() == Py_True;
}
// A kind's field; `parse` reads its name.
template <class Parse>
auto kind_of(nb::handle value, const char* field, const Parse& parse) {
  if (!PyUnicode_Check(value.ptr())) type_error("{} must be a str, not a {}", field, type_of(value));
  try {
    return parse(nb::cast<std::string>(value));
  } catch (const Error& error) {
    throw Error(error.code(), error.stage(), field, fmt::format("{}: {}", field, error.message()));
  }
}
void set(SequenceKind& member, nb::handle value, const char* field) {
  member = kind_of(value, field, parse_sequence_kind);
}
void set(ScaleKind& member, nb::handle value, const char* field) {
  member = kind_of(value, field, parse_scale_kind);
}
void set(DType& member, nb::handle value, const char* field) {
  const DTypeFacts* row = dtype_row(value);  // the library may refuse it with a reason
  if (row == nullptr)
    refuse(field, fmt::format("is {}; it must be \"bf16\" or \"fp16\"", nb::repr(value).c_str()));
  member = row->dtype;
}
void set(std::optional<DType>& member, nb::handle value, const char* field) {
  if (value.is_none()) return;
  const DTypeFacts* row = dtype_row(value);
  if (row == nullptr)
    refuse(field,
           fmt::format("is {}; it must be None, {}", nb::repr(value).c_str(),
                       std::string(field) == "out_dtype" ? "\"bf16\", \"fp16\" or \"fp32\""
                                                         : "\"fp8_e4m3\", \"fp8_e5m2\", \"int8\", \"int4\", "
                                                           "\"nvfp4\" or \"mxfp4\""));
  member = row->dtype;
}
void set(Mask& member, nb::handle value, const char*) { member = mask_of(value); }
void set(Score& member, nb::handle value, const char*) { member = score_of(value); }
void set(OutputFunctor& member, nb::handle value, const char*) { member = output_of(value); }
void set(std::optional<float>& member, nb::handle value, const char*) { member = scale_of(value); }

}  // namespace

const Mask& mask_of(nb::handle mask) {
  static const Mask& none = *new Mask;
  return mask.is_none() ? none : native<Mask>(mask, "mask", "jit_attention.Mask");
}

const Score& score_of(nb::handle score) {
  static const Score& none = *new Score;
  return score.is_none() ? none : native<Score>(score, "score", "jit_attention.Score");
}

const OutputFunctor& output_of(nb::handle output) {
  static const OutputFunctor& none = *new OutputFunctor;
  return output.is_none() ? none : native<OutputFunctor>(output, "output", "jit_attention.OutputFunctor");
}

std::optional<float> scale_of(nb::handle softmax_scale) {
  if (softmax_scale.is_none()) return {};
  const double number = PyBool_Check(softmax_scale.ptr()) ? -1.0 : PyFloat_AsDouble(softmax_scale.ptr());
  if (PyBool_Check(softmax_scale.ptr())) type_error("softmax_scale must be a number or None, not a bool");
  if (number == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    type_error("softmax_scale must be a number or None, not a {}", type_of(softmax_scale));
  }
  return static_cast<float>(number);
}

namespace {

// None, or an element type that satisfies `is_wanted`.
std::optional<DType> one_of(nb::handle dtype, const char* argument, bool (*is_wanted)(const DTypeFacts&)) {
  if (dtype.is_none()) return {};
  if (const DTypeFacts* row = dtype_row(dtype); row != nullptr && is_wanted(*row)) return row->dtype;
  std::string names;
  for (const DTypeFacts& row : dtype_table()) {
    if (is_wanted(row)) names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", row.name);
  }
  refuse(argument, fmt::format("is {}; it must be None, {}", nb::repr(dtype).c_str(), names));
}

}  // namespace

std::optional<DType> dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) { return row.is_operand; });
}

std::optional<DType> float_dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) { return row.is_floating(); });
}

std::optional<DType> result_dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) {
    return row.is_floating() || row.dtype == DType::fp8_e4m3 || row.dtype == DType::int8;
  });
}

std::optional<DType> input_dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) { return row.is_operand || row.is_fp8(); });
}

std::optional<DType> fp8_dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) { return row.is_fp8(); });
}

std::optional<DType> stored_dtype_of(nb::handle dtype, const char* argument) {
  return one_of(dtype, argument, [](const DTypeFacts& row) { return row.is_stored(); });
}

std::optional<ScaleKind> scale_kind_of(nb::handle descale_per) {
  if (descale_per.is_none()) return {};
  return kind_of(descale_per, "descale_per", parse_scale_kind);
}

AttentionSpec spec_of(nb::handle spec) {
  AttentionSpec result;
  for (const SpecField& field : spec_fields()) {
    const std::string name(field.name);
    if (!nb::hasattr(spec, name.c_str()))
      type_error("spec must be a jit_attention.AttentionSpec, not a {}", type_of(spec));
    const nb::object value = spec.attr(name.c_str());
    std::visit([&](auto member) { set(result.*member, value, name.c_str()); }, field.member);
  }
  return result;
}

std::optional<KernelConfig> config_of(nb::handle config) {
  if (config.is_none()) return {};
  if (PyUnicode_Check(config.ptr())) return parse_config(nb::cast<std::string>(config));
  if (!PyDict_Check(config.ptr()))
    type_error("config must be a dict of fields, text such as \"tile_q=128 tile_kv=64\", or None, not a {}",
               type_of(config));
  std::string text;
  for (const auto& [field, value] : nb::cast<nb::dict>(config)) {
    const std::string shown = PyBool_Check(value.ptr()) ? (value.ptr() == Py_True ? "true" : "false")
                                                        : nb::cast<std::string>(nb::str(value));
    const std::string name = nb::cast<std::string>(nb::str(field));
    if ((name + shown).find_first_of(" ,\t\n=") != std::string::npos)
      refuse("config",
             fmt::format("has {} = {}; fields and values are single words", name, nb::repr(value).c_str()));
    text += fmt::format("{}={} ", name, shown);
  }
  return parse_config(text);
}

nb::dict config_as_dict(const KernelConfig& config) {
  nb::dict result;
  result["family"] = nb::str(family_name(config).data(), family_name(config).size());
  for (const ConfigValue& value : config_values(config)) {
    const std::string key(value.name);
    switch (value.kind) {
      case ConfigValue::Kind::number:
        result[key.c_str()] = value.number;
        break;
      case ConfigValue::Kind::truth:
        result[key.c_str()] = value.number != 0;
        break;
      case ConfigValue::Kind::word:
        result[key.c_str()] = value.text;
    }
  }
  return result;
}

void bind_spec(nb::module_& module) {
  nb::class_<Mask>(module, "NativeMask", "What a Mask is to the library.")
      .def_prop_ro("text", &Mask::to_string)
      .def_prop_ro("tensors", tensors_of<Mask>);
  nb::class_<Score>(module, "NativeScore", "What a Score is to the library.")
      .def_prop_ro("text", &Score::to_string)
      .def_prop_ro("tensors", tensors_of<Score>);
  nb::class_<OutputFunctor>(module, "NativeOutput", "What an OutputFunctor is to the library.")
      .def_prop_ro("text", &OutputFunctor::to_string)
      .def_prop_ro("tensors", tensors_of<OutputFunctor>);
  module.def(
      "parse_mask",
      [](const std::string& text, nb::handle texts) { return parse_mask(text, functor_texts_of(texts)); },
      nb::arg("text"), nb::arg("texts"));
  module.def(
      "parse_score",
      [](const std::string& text, nb::handle texts) { return parse_score(text, functor_texts_of(texts)); },
      nb::arg("text"), nb::arg("texts"));
  module.def(
      "parse_output",
      [](const std::string& text, nb::handle texts) { return parse_output(text, functor_texts_of(texts)); },
      nb::arg("text"), nb::arg("texts"));
  module.def(
      "spec_fields",
      [] {
        nb::dict docs;
        for (const SpecField& field : spec_fields())
          docs[std::string(field.name).c_str()] = std::string(field.doc);
        return docs;
      },
      "Names of a spec's fields, and what they are.");
  module.def(
      "functor_usages", [] { return nb::make_tuple(mask_usages(), score_usages(), output_usages()); },
      "The built-in masks, scores and outputs, as their parsers read them.");
  module.def(
      "validate_spec", [](nb::handle spec) { validate(spec_of(spec)); }, nb::arg("spec"));
  module.def(
      "refusals",
      [](nb::handle spec, nb::handle arch) {
        const AttentionSpec wanted = spec_of(spec);
        if (arch.is_none()) use_device_here();
        const std::vector<Refusal> refusals =
            arch.is_none() ? refusals_of(wanted, device_info(0))
                           : refusals_of(wanted, parse_arch(nb::cast<std::string>(nb::str(arch))));
        nb::list result;
        for (const Refusal& refusal : refusals)
          result.append(nb::make_tuple(refusal.field, refusal.value, refusal.rule, refusal.nearest));
        return result;
      },
      nb::arg("spec"), nb::arg("arch").none());
}

}  // namespace jit::python
