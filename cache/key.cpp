#include "cache/key.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {
namespace {

constexpr const char* schema_version = "1";

bool is_field_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), allowed);
}

// Removes the first field from `text`.
std::optional<KeyField> take_field(std::string_view& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || !is_field_name(text.substr(0, space))) return std::nullopt;
  const std::size_t line_end = text.find('\n', space);
  if (line_end == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(space + 1, line_end - space - 1);
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  const std::string_view rest = text.substr(line_end + 1);
  if (rest.size() <= length || rest[length] != '\n') return std::nullopt;
  KeyField field{std::string(text.substr(0, space)), std::string(rest.substr(0, length))};
  text = rest.substr(length + 1);
  return field;
}

}  // namespace

std::string canonical_text(std::span<const KeyField> fields) {
  std::string text;
  for (const KeyField& field : fields) {
    if (!is_field_name(field.name)) {
      throw Error(
          ErrorCode::invalid_argument, "key", field.name,
          fmt::format("key field name '{}' may have letters, digits, '_', '-' and '.' only", field.name));
    }
    text += fmt::format("{} {}\n", field.name, field.value.size());
    text += field.value;
    text += '\n';
  }
  return text;
}

std::optional<std::vector<KeyField>> parse_canonical_text(std::string_view text) {
  std::vector<KeyField> fields;
  while (!text.empty()) {
    std::optional<KeyField> field = take_field(text);
    if (!field) return std::nullopt;
    fields.push_back(std::move(*field));
  }
  return fields;
}

Key::Key(std::span<const KeyField> fields) {
  const KeyField schema{"schema", schema_version};
  text_ = canonical_text({&schema, 1}) + canonical_text(fields);
  digest_ = jit::digest(text_);
}

Key::Key(std::initializer_list<KeyField> fields) : Key(std::span(fields.begin(), fields.size())) {}

}  // namespace jit
