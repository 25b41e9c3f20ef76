// Reports, tuning records and what cache entries tell, as JSON objects. One source includes the JSON library, which
// takes longer to compile than what uses it.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace jit {

struct JsonMember;

/// Members in the order in which they were added.
struct JsonObject {
  using Texts = std::vector<std::string>;
  using Value = std::variant<bool, std::int64_t, double, std::string, Texts, JsonObject>;
  std::vector<JsonMember> members;

  JsonObject& add(std::string_view name, bool value);
  JsonObject& add(std::string_view name, std::integral auto value);
  JsonObject& add(std::string_view name, double value);
  JsonObject& add(std::string_view name, std::string_view value);
  JsonObject& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  JsonObject& add(std::string_view name, Texts value);
  JsonObject& add(std::string_view name, JsonObject value);

  /// The member of that name, if it has one of that kind.
  std::optional<std::int64_t> whole(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;  ///< whole numbers, too
  std::optional<std::string> text(std::string_view name) const;
  std::optional<Texts> texts(std::string_view name) const;

  /// On one line, or with `indent` spaces for each level.
  std::string dump(int indent = -1) const;

 private:
  JsonObject& add_value(std::string_view name, Value value);
};

struct JsonMember {
  std::string name;
  JsonObject::Value value;
};

inline JsonObject& JsonObject::add(std::string_view name, std::integral auto value) {
  return add_value(name, static_cast<std::int64_t>(value));
}

/// The object that a text is; members of kinds that a JsonObject has not are left out. Nothing when it is no
/// object.
std::optional<JsonObject> parse_json(std::string_view text);

}  // namespace jit
