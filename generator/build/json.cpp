#include "generator/build/json.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace jit {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const JsonObject& object) {
  Json json = Json::object();
  for (const JsonMember& member : object.members) {
    std::visit(
        [&]<class Value>(const Value& value) {
          if constexpr (std::is_same_v<Value, JsonObject>) {
            json[member.name] = to_json(value);
          } else {
            json[member.name] = value;
          }
        },
        member.value);
  }
  return json;
}

JsonObject from_json(const Json& json) {
  JsonObject object;
  for (const auto& [name, value] : json.items()) {
    const bool is_texts = value.is_array() && std::all_of(value.begin(), value.end(),
                                                          [](const Json& item) { return item.is_string(); });
    if (value.is_boolean()) {
      object.add(name, value.get<bool>());
    } else if (value.is_number_integer()) {
      object.add(name, value.get<std::int64_t>());
    } else if (value.is_number()) {
      object.add(name, value.get<double>());
    } else if (value.is_string()) {
      object.add(name, value.get<std::string>());
    } else if (is_texts) {
      object.add(name, value.get<JsonObject::Texts>());
    } else if (value.is_object()) {
      object.add(name, from_json(value));
    }
  }
  return object;
}

// The member's value if it has this type.
template <class Value>
const Value* find(const JsonObject& object, std::string_view name) {
  for (const JsonMember& member : object.members) {
    if (member.name == name) return std::get_if<Value>(&member.value);
  }
  return nullptr;
}

template <class Value>
std::optional<Value> copy_of(const JsonObject& object, std::string_view name) {
  const Value* value = find<Value>(object, name);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

}  // namespace

JsonObject& JsonObject::add_value(std::string_view name, Value value) {
  members.push_back({std::string(name), std::move(value)});
  return *this;
}
JsonObject& JsonObject::add_whole(std::string_view name, std::int64_t value) {
  return add_value(name, value);
}
JsonObject& JsonObject::add(std::string_view name, bool value) { return add_value(name, value); }
JsonObject& JsonObject::add(std::string_view name, double value) { return add_value(name, value); }
JsonObject& JsonObject::add(std::string_view name, std::string_view value) {
  return add_value(name, std::string(value));
}
JsonObject& JsonObject::add(std::string_view name, Texts value) { return add_value(name, std::move(value)); }
JsonObject& JsonObject::add(std::string_view name, JsonObject value) {
  return add_value(name, std::move(value));
}

std::optional<std::int64_t> JsonObject::whole(std::string_view name) const {
  return copy_of<std::int64_t>(*this, name);
}
std::optional<double> JsonObject::number(std::string_view name) const {
  if (const std::optional<std::int64_t> value = whole(name)) return static_cast<double>(*value);
  return copy_of<double>(*this, name);
}
std::optional<std::string> JsonObject::text(std::string_view name) const {
  return copy_of<std::string>(*this, name);
}
std::optional<JsonObject::Texts> JsonObject::texts(std::string_view name) const {
  return copy_of<Texts>(*this, name);
}

std::string JsonObject::dump(int indent) const { return to_json(*this).dump(indent); }

std::optional<JsonObject> parse_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? std::optional(from_json(json)) : std::nullopt;
}

}  // namespace jit
