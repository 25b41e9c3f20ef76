#include "xla/attributes.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "generator/tensors/tensor_checks.h"

namespace jit::xla {
namespace {

std::string_view view_of(const Text& text) { return {text.data, text.length}; }

template <class T>
T value_of(const Scalar& scalar) {
  T value;
  std::memcpy(&value, scalar.value, sizeof(value));
  return value;
}

int bytes_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8:
    case ElementType::fp8_e4m3:
    case ElementType::fp8_e5m2:
      return 1;
    case ElementType::fp16:
    case ElementType::bf16:
      return 2;
    case ElementType::int32:
    case ElementType::uint32:
    case ElementType::fp32:
      return 4;
    case ElementType::int64:
    case ElementType::fp64:
      return 8;
  }
  return 0;  // for types that attributes cannot have
}

template <class T>
void append_bytes(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& key, const Text& text) {
  append_bytes(key, text.length);
  key.append(text.data, text.length);
}

void append(std::string& key, const Attributes& attributes) {
  append_bytes(key, attributes.size);
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    append_text(key, *attributes.names[i]);
    const AttributeKind kind = attributes.kinds[i];
    append_bytes(key, kind);
    const void* item = attributes.items[i];
    if (kind == AttributeKind::string) append_text(key, *static_cast<const Text*>(item));
    if (kind == AttributeKind::dictionary) append(key, *static_cast<const Attributes*>(item));
    if (kind != AttributeKind::scalar) continue;
    const Scalar& scalar = *static_cast<const Scalar*>(item);
    append_bytes(key, scalar.dtype);
    key.append(static_cast<const char*>(scalar.value), static_cast<std::size_t>(bytes_of(scalar.dtype)));
  }
}

}  // namespace

Attribute::Attribute(const Attributes& attributes, std::int64_t number)
    : name_(view_of(*attributes.names[number])),
      kind_(attributes.kinds[number]),
      item_(attributes.items[number]) {}

std::string_view Attribute::text() const {
  if (kind_ != AttributeKind::string) refuse(name_, "must be a string attribute");
  return view_of(*static_cast<const Text*>(item_));
}

const Scalar& Attribute::scalar(const char* wanted) const {
  if (kind_ != AttributeKind::scalar) refuse(name_, fmt::format("must be a scalar attribute, {}", wanted));
  return *static_cast<const Scalar*>(item_);
}

bool Attribute::truth() const {
  const Scalar& given = scalar("PRED");
  if (given.dtype != ElementType::boolean) refuse(name_, "must be a scalar attribute of PRED");
  return value_of<bool>(given);
}

int Attribute::whole() const {
  const Scalar& given = scalar("S32 or S64");
  if (given.dtype == ElementType::int32) return value_of<std::int32_t>(given);
  if (given.dtype != ElementType::int64) refuse(name_, "must be a scalar attribute of S32 or S64");
  const std::int64_t value = value_of<std::int64_t>(given);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    refuse(name_, fmt::format("is {}, which 32 bits have no room for", value));
  return static_cast<int>(value);
}

double Attribute::real() const {
  const Scalar& given = scalar("F32 or F64");
  if (given.dtype == ElementType::fp32) return value_of<float>(given);
  if (given.dtype == ElementType::fp64) return value_of<double>(given);
  if (given.dtype == ElementType::int32 || given.dtype == ElementType::int64) return whole();
  refuse(name_, "must be a scalar attribute of F32 or F64");
}

const Attributes& Attribute::dictionary() const {
  if (kind_ != AttributeKind::dictionary) refuse(name_, "must be a dictionary attribute");
  return *static_cast<const Attributes*>(item_);
}

std::vector<Attribute> all_of(const Attributes& attributes) {
  std::vector<Attribute> all;
  for (std::int64_t i = 0; i < attributes.size; ++i) all.emplace_back(attributes, i);
  return all;
}

void refuse_unknown(const Attribute& attribute, std::string_view known) {
  refuse(attribute.name(), fmt::format("is no attribute of this call; there are {}", known));
}

std::string key_of(const Attributes& attributes) {
  std::string key;
  append(key, attributes);
  return key;
}

}  // namespace jit::xla
