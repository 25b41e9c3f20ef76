#include "config_json.h"

#include <algorithm>

#include <fmt/format.h>

#include "command.h"

namespace jit::tool {
namespace {

using Json = ConfigJson::Json;

const Json& text_part(const Json& whole) {
  for (const char* name : {"text_config", "llm_config", "language_config"}) {
    if (whole.contains(name) && whole[name].is_object()) return whole[name];
  }
  return whole;
}

const Json* member_of(const Json& json, const char* name) {
  const auto member = json.find(name);
  return member != json.end() && !member->is_null() ? &*member : nullptr;
}

std::optional<double> positive(const ConfigJson& config, const char* name, const Json* value) {
  if (value == nullptr) return {};
  if (!value->is_number() || !(value->get<double>() > 0))
    config.refuse(fmt::format("{} is {}; it must be a number above 0", name, value->dump()));
  return value->get<double>();
}

std::optional<bool> truth_of(const Json* value) {
  return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
}

}  // namespace

ConfigJson::ConfigJson(const Json& whole, std::string_view source)
    : whole_(whole), part_(text_part(whole)), source_(source) {}

void ConfigJson::refuse(const std::string& why) const { throw BadInput(fmt::format("{}: {}", source_, why)); }

// Falls back to the whole config when the part lacks the member.
const Json* ConfigJson::find(const char* name) const {
  const Json* const own = member_of(part_, name);
  return own != nullptr ? own : member_of(whole_, name);
}

const Json* ConfigJson::find_rotary(const char* name) const {
  for (const char* group : {"rope_parameters", "rope_scaling"}) {
    const Json* const rotary = find(group);
    if (rotary == nullptr || !rotary->is_object()) continue;
    if (const Json* const member = member_of(*rotary, name)) return member;
  }
  return find(name);
}

std::optional<std::int64_t> ConfigJson::whole_number(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    const Json* value = find(name);
    if (value == nullptr) continue;
    if (!value->is_number_integer() || value->get<std::int64_t>() < 1 || value->get<std::int64_t>() > 1 << 24)
      refuse(fmt::format("{} is {}; it must be one whole number above 0", name, value->dump()));
    return value->get<std::int64_t>();
  }
  return {};
}

std::optional<double> ConfigJson::number(const char* name) const { return positive(*this, name, find(name)); }

std::optional<double> ConfigJson::rotary_number(const char* name) const {
  return positive(*this, name, find_rotary(name));
}

std::optional<bool> ConfigJson::truth(const char* name) const { return truth_of(find(name)); }

std::optional<bool> ConfigJson::rotary_truth(const char* name) const { return truth_of(find_rotary(name)); }

std::optional<std::array<int, 3>> ConfigJson::rotary_sections(const char* name) const {
  const Json* const value = find_rotary(name);
  if (value == nullptr) return {};
  const auto is_count = [](const Json& item) {
    return item.is_number_integer() && item.get<std::int64_t>() >= 0 && item.get<std::int64_t>() <= 1 << 12;
  };
  if (!value->is_array() || value->size() != 3 || !std::all_of(value->begin(), value->end(), is_count))
    refuse(fmt::format("{} is {}; it must be three whole numbers", name, value->dump()));
  return value->get<std::array<int, 3>>();
}

std::string ConfigJson::text(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    const Json* value = find(name);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
  }
  return "";
}

std::vector<std::string> ConfigJson::layer_types() const {
  std::vector<std::string> kinds;
  const Json* list = find("layer_types");
  if (list == nullptr) return kinds;
  if (!list->is_array()) refuse("layer_types is no list");
  for (const Json& item : *list) {
    if (!item.is_string()) refuse(fmt::format("layer_types holds {}; it must hold names", item.dump()));
    const std::string kind = item.get<std::string>();
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace jit::tool
