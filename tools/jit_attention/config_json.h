// Queries of a Hugging Face model's config.json.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace jit::tool {

/// A model's config, or its language model's part. A null member counts as missing. Members throw BadInput,
/// naming the file, for a value of the wrong kind.
class ConfigJson {
 public:
  using Json = nlohmann::ordered_json;

  /// Refers to both. Requires that `whole` is an object.
  ConfigJson(const Json& whole, std::string_view source);

  bool has(const char* name) const { return find(name) != nullptr; }
  /// The first of these members that exists; must be 1 to 2^24.
  std::optional<std::int64_t> whole_number(std::initializer_list<const char*> names) const;
  /// A positive number.
  std::optional<double> number(const char* name) const;
  std::optional<bool> truth(const char* name) const;
  /// The first of these members that is a text; empty: none.
  std::string text(std::initializer_list<const char*> names) const;
  /// The distinct kinds of layers, in order.
  std::vector<std::string> layer_types() const;
  bool has_vision() const { return whole_.contains("vision_config"); }
  /// A number of the rotation: from rope_parameters or rope_scaling, else from the config itself.
  std::optional<double> rotary_number(const char* name) const;
  std::optional<bool> rotary_truth(const char* name) const;
  /// Three nonnegative integers.
  std::optional<std::array<int, 3>> rotary_sections(const char* name) const;

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Json* find(const char* name) const;
  const Json* find_rotary(const char* name) const;

  const Json& whole_;
  const Json& part_;
  std::string_view source_;
};

}  // namespace jit::tool
