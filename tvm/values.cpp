#include "tvm/values.h"

#include <limits>

#include <fmt/format.h>

#include "capi/errors.h"

namespace jit::tvm {
namespace {

// An object's content follows its header.
template <class T>
const T& content_of(const Value& value) {
  return *reinterpret_cast<const T*>(static_cast<const Object*>(value.pointer) + 1);
}

bool is_tensor(const Value& value) { return value.type == tensor_pointer || value.type == tensor_object; }

std::string_view checked_text(const Value& value, std::string_view argument) {
  const std::optional<std::string_view> text = text_of(value);
  if (!text && value.type == c_text) c::refuse(argument, "is a null pointer; it must be a str");
  if (!text) c::refuse(argument, fmt::format("is of tvm-ffi's type {}; it must be a str", value.type));
  return *text;
}

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view separators = " ,";
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(separators); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return words;
}

}  // namespace

std::optional<std::string_view> text_of(const Value& value) {
  switch (value.type) {
    case c_text:
      if (value.pointer == nullptr) return {};
      return static_cast<const char*>(value.pointer);
    case small_text:
      return std::string_view(value.small, value.small_length);
    case text_object: {
      const Bytes& bytes = content_of<Bytes>(value);
      return std::string_view(bytes.data, bytes.size);
    }
    default:
      return {};
  }
}

const jit_tensor* NamedValue::tensor() const {
  if (value->type == none) return nullptr;
  if (!is_tensor(*value))
    c::refuse(name, fmt::format("is of tvm-ffi's type {}; it must be a tensor or None", value->type));
  return value->type == tensor_pointer ? static_cast<const jit_tensor*>(value->pointer)
                                       : &content_of<jit_tensor>(*value);
}

int NamedValue::whole() const {
  using Limits = std::numeric_limits<int>;
  if (value->type != ValueType::whole && value->type != truth)
    c::refuse(name, fmt::format("is of tvm-ffi's type {}; it must be an int or a bool", value->type));
  if (value->whole < Limits::min() || value->whole > Limits::max())
    c::refuse(name, fmt::format("is {}; it must have 32 bits", value->whole));
  return static_cast<int>(value->whole);
}

double NamedValue::real() const {
  if (value->type == ValueType::real) return value->real;
  return whole();
}

GivenCall read_call(const Value* arguments, std::int32_t count) {
  if (count < 2) c::refuse("spec", "is missing; give a spec, names, and a value for each name");
  GivenCall call{.spec = std::string(checked_text(arguments[0], "spec")), .values = {}};
  const std::vector<std::string_view> names = words_of(checked_text(arguments[1], "names"));
  if (names.size() + 2 != static_cast<std::size_t>(count))
    c::refuse("names", fmt::format("has {} names, and {} values were given", names.size(), count - 2));
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const NamedValue& other : call.values) {
      if (other.name == names[i] && !names[i].starts_with("parts.")) c::refuse(names[i], "is given twice");
    }
    call.values.push_back({names[i], &arguments[i + 2]});
  }
  return call;
}

std::optional<jit_tensor_device> device_of(const GivenCall& call) {
  for (const NamedValue& each : call.values) {
    if (is_tensor(*each.value)) return each.tensor()->device;
  }
  return {};
}

}  // namespace jit::tvm
