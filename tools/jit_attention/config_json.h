// config.json of a Hugging Face model, as what is asked of it.
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

/// A config of a model, or the part of it that describes the language model. What is null is not there. Members throw
/// BadInput, naming the file, where a value cannot be what is asked for.
class ConfigJson {
 public:
  using Json = nlohmann::ordered_json;

  /// Both are referred to. Requires: `whole` is an object.
  ConfigJson(const Json& whole, std::string_view source);

  bool has(const char* name) const { return find(name) != nullptr; }
  /// The first of these names that is there: from 1 to 2^24.
  std::optional<std::int64_t> whole_number(std::initializer_list<const char*> names) const;
  /// Above 0.
  std::optional<double> number(const char* name) const;
  std::optional<bool> truth(const char* name) const;
  /// The first of these names that is a text; empty: none is.
  std::string text(std::initializer_list<const char*> names) const;
  /// The kinds of layers in their order, each once.
  std::vector<std::string> layer_types() const;
  bool has_vision() const { return whole_.contains("vision_config"); }
  /// A number of the rotation: the member of rope_parameters or rope_scaling, else of the config itself.
  std::optional<double> rotary_number(const char* name) const;
  std::optional<bool> rotary_truth(const char* name) const;
  /// Three whole numbers from 0.
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
