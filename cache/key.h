// The key of a cached object: an ordered list of named fields, stored completely with the entry and compared
// when it is loaded.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/digest.h"

namespace jit {

/// One input of the compiler (or of a measurement). `name` consists of letters, digits, '_', '-' and '.';
/// `value` is any bytes.
struct KeyField {
  std::string name;
  std::string value;

  bool operator==(const KeyField&) const = default;
};

/// The fields as bytes, `<name> <length of value>\n<value>\n` each: readable and unambiguous. Throws Error
/// (invalid_argument) for a name with other characters.
std::string canonical_text(std::span<const KeyField> fields);

/// The inverse of canonical_text; nothing if `text` is not its exact output.
std::optional<std::vector<KeyField>> parse_canonical_text(std::string_view text);

/// An immutable key. The first field is always the schema version of this class, so that keys of different
/// schemas differ.
class Key {
 public:
  /// Throws Error (invalid_argument) for a field name with other characters than KeyField allows.
  explicit Key(std::span<const KeyField> fields);
  Key(std::initializer_list<KeyField> fields);

  const std::string& text() const { return text_; }  ///< canonical bytes, schema version included
  const Digest& digest() const { return digest_; }   ///< jit::digest(text())

  bool operator==(const Key& other) const { return text_ == other.text_; }

 private:
  std::string text_;
  Digest digest_;
};

}  // namespace jit
