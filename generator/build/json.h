// JSON objects for reports, tuning records and metadata of cache entries. Only one source file includes the
// JSON library, which is slow to compile.
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
  JsonObject& add(std::string_view name, std::integral auto value) {
    return add_whole(name, static_cast<std::int64_t>(value));
  }
  JsonObject& add(std::string_view name, double value);
  JsonObject& add(std::string_view name, std::string_view value);
  JsonObject& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  JsonObject& add(std::string_view name, Texts value);
  JsonObject& add(std::string_view name, JsonObject value);

  /// The member `name` if it exists and has this type.
  std::optional<std::int64_t> whole(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;  ///< whole numbers, too
  std::optional<std::string> text(std::string_view name) const;
  std::optional<Texts> texts(std::string_view name) const;

  /// The object as text: on one line, or indented by `indent` spaces per level.
  std::string dump(int indent = -1) const;

 private:
  JsonObject& add_whole(std::string_view name, std::int64_t value);
  JsonObject& add_value(std::string_view name, Value value);
};

struct JsonMember {
  std::string name;
  JsonObject::Value value;
};

/// Parses an object; skips members of types that JsonObject does not represent. Nothing if `text` is no
/// object.
std::optional<JsonObject> parse_json(std::string_view text);

}  // namespace jit
