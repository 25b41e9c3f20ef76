// Text of configs.
#include <jit/kernel_config.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/error.h>

#include "generator/kernels/families.h"
#include "generator/kernels/retired_fields.h"

namespace jit {
namespace {

struct Assignment {
  std::string_view name;
  std::string_view value;
};

constexpr std::string_view separators = " ,\t\n";
constexpr std::string_view family_field = "family";
constexpr std::string_view between_configs = " + ";

// Field names of all families, each once.
std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names = {family_field};
  for_each_family([&]<class Config>(const Config&) {
    for (const ConfigField<Config>& field : Family<Config>::fields()) {
      if (std::find(names.begin(), names.end(), field.name) == names.end()) names.push_back(field.name);
    }
  });
  return names;
}

std::vector<Assignment> split(std::string_view text) {
  const std::string_view whole = text;
  const std::vector<std::string_view> names = known_names();
  std::vector<Assignment> assignments;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return assignments;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const bool is_known =
        std::find(names.begin(), names.end(), name) != names.end() || find_retired(name) != nullptr;
    if (equals == std::string_view::npos || !is_known) {
      throw Error(
          ErrorCode::invalid_argument, "parse", "config",
          fmt::format("'{}' is not field=value of a config; fields are {}", word, fmt::join(names, ", ")));
    }
    const auto is_same = [name](const Assignment& earlier) { return earlier.name == name; };
    if (std::any_of(assignments.begin(), assignments.end(), is_same)) {
      throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(name),
                  fmt::format("config field {} is given twice in '{}'; give it once", name, whole));
    }
    assignments.push_back({name, word.substr(equals + 1)});
  }
}

// The default config of each family.
std::vector<KernelConfig> all_defaults() {
  std::vector<KernelConfig> defaults;
  for_each_family([&](const auto& config) { defaults.emplace_back(config); });
  return defaults;
}

bool has_field(const KernelConfig& config, std::string_view name) {
  return std::visit(
      [&]<class Config>(const Config&) {
        const auto fields = Family<Config>::fields();
        return std::any_of(fields.begin(), fields.end(),
                           [&](const auto& field) { return field.name == name; });
      },
      config);
}

// The default config of the family that the text names, or implies by a field that is unique in the base's
// pass.
std::optional<KernelConfig> asked_family(const std::vector<Assignment>& assignments,
                                         const KernelConfig& base) {
  const std::vector<KernelConfig> families = all_defaults();
  for (const Assignment& given : assignments) {
    if (given.name != family_field) continue;
    std::string names;
    for (const KernelConfig& family : families) {
      if (family_name(family) == given.value) return family;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", family_name(family));
    }
    throw Error(ErrorCode::invalid_argument, "parse", "config.family",
                fmt::format("config field family cannot be '{}'; it is one of {}", given.value, names));
  }
  for (const Assignment& given : assignments) {
    const auto has = [&](const KernelConfig& family) {
      return pass_of(family) == pass_of(base) && has_field(family, given.name);
    };
    if (std::count_if(families.begin(), families.end(), has) == 1)
      return *std::find_if(families.begin(), families.end(), has);
  }
  return std::nullopt;
}

template <class Config>
int parse_value(const ConfigField<Config>& field, std::string_view text) {
  for (std::size_t i = 0; i < field.value_names.size(); ++i) {
    if (field.value_names[i] == text) return static_cast<int>(i);
  }
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (field.is_word() || error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(field.name),
                fmt::format("config field {} cannot be '{}'; it is {}", field.name, text,
                            field.is_word() ? "one of " + field.values() : "a whole number"));
  }
  return value;
}

[[noreturn]] void refuse_retired(const RetiredField& field) {
  throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(field.name),
              fmt::format("config field {} is retired, because in family={} {}; {}", field.name, field.family,
                          field.now, field.advice));
}

template <class Config>
void assign(Config& config, const Assignment& given) {
  for (const ConfigField<Config>& field : Family<Config>::fields()) {
    if (field.name == given.name) return field.set(config, parse_value(field, given.value));
  }
  if (const RetiredField* const own = find_retired(Family<Config>::name, given.name)) refuse_retired(*own);
  // Prefers families of the same pass.
  const auto owners_of = [&](bool same_pass) {
    std::string owners;
    for (const KernelConfig& family : all_defaults()) {
      if (same_pass && pass_of(family) != Family<Config>::pass) continue;
      if (has_field(family, given.name))
        owners += fmt::format("{}{}", owners.empty() ? "" : ", ", family_name(family));
    }
    return owners;
  };
  std::string owners = owners_of(true);
  if (owners.empty()) owners = owners_of(false);
  if (owners.empty()) refuse_retired(*find_retired(given.name));
  throw Error(ErrorCode::invalid_argument, "parse", "config." + std::string(given.name),
              fmt::format("config field {} belongs to family={}; this config has family={}", given.name,
                          owners, Family<Config>::name));
}

}  // namespace

std::string to_string(const LegalValues& values) {
  if (values.step == 1) return fmt::format("{} to {}", values.low, values.high);
  if (values.low + values.step == values.high) return fmt::format("{} or {}", values.low, values.high);
  return fmt::format("a multiple of {} from {} to {}", values.step, values.low, values.high);
}

std::string_view family_name(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return Family<Config>::name; }, config);
}

std::string to_string(const KernelConfig& config) {
  std::string text = fmt::format("{}={}", family_field, family_name(config));
  for (const ConfigValue& value : config_values(config))
    text += fmt::format(" {}={}", value.name, value.text);
  return text;
}

KernelConfig parse_config(std::string_view text, const KernelConfig& base) {
  const std::vector<Assignment> assignments = split(text);
  const std::optional<KernelConfig> asked = asked_family(assignments, base);
  KernelConfig config = asked && asked->index() != base.index() ? *asked : base;
  std::visit(
      [&](auto& own) {
        for (const Assignment& given : assignments) {
          if (given.name != family_field) assign(own, given);
        }
      },
      config);
  return config;
}

std::string to_string(const PlanConfigs& configs) {
  std::string text;
  for (const KernelConfig& config : configs) {
    if (!text.empty()) text += between_configs;
    text += to_string(config);
  }
  return text;
}

PlanConfigs parse_plan_configs(std::string_view text) {
  PlanConfigs configs;
  for (bool is_last = false; !is_last;) {
    const std::size_t end = text.find(between_configs);
    is_last = end == std::string_view::npos;
    configs.push_back(parse_config(text.substr(0, end)));
    if (!is_last) text.remove_prefix(end + between_configs.size());
  }
  return configs;
}

std::vector<ConfigValue> config_values(const KernelConfig& config) {
  return std::visit(
      []<class Config>(const Config& own) {
        std::vector<ConfigValue> values;
        for (const ConfigField<Config>& field : Family<Config>::fields()) {
          values.push_back({.name = field.name,
                            .kind = field.cpp_type == "bool" ? ConfigValue::Kind::truth
                                    : field.is_word()        ? ConfigValue::Kind::word
                                                             : ConfigValue::Kind::number,
                            .number = field.get(own),
                            .text = field.print(own)});
        }
        return values;
      },
      config);
}

const std::vector<FamilyDoc>& family_docs() {
  static const std::vector<FamilyDoc> docs = [] {
    std::vector<FamilyDoc> families;
    for_each_family([&]<class Config>(const Config&) {
      FamilyDoc& family = families.emplace_back(FamilyDoc{Family<Config>::name, Family<Config>::doc, {}});
      for (const ConfigField<Config>& field : Family<Config>::fields())
        family.fields.push_back({field.name, field.values(), field.doc});
    });
    return families;
  }();
  return docs;
}

}  // namespace jit
