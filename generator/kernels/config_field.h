// Tables of a family's config fields, and functions over their rows: text, source, range checks, comparison.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/kernel_config.h>

namespace jit {

/// A field type's name in generated source, and the names of its values, by index, if they are not numbers.
template <class T>
struct FieldType;
template <>
struct FieldType<int> {
  static constexpr std::string_view name = "int";
  static constexpr std::array<std::string_view, 0> values = {};
};
template <>
struct FieldType<bool> {
  static constexpr std::string_view name = "bool";
  static constexpr std::array<std::string_view, 2> values = {"false", "true"};
};
template <>
struct FieldType<Rescale> {
  static constexpr std::string_view name = "Rescale";
  static constexpr std::array<std::string_view, 3> values = {"always", "lazy", "on_overflow"};
};
template <>
struct FieldType<WarpgroupOrder> {
  static constexpr std::string_view name = "WarpgroupOrder";
  static constexpr std::array<std::string_view, 2> values = {"free", "ping_pong"};
};
template <>
struct FieldType<OutputPlace> {
  static constexpr std::string_view name = "OutputPlace";
  static constexpr std::array<std::string_view, 3> values = {"over_q", "separate", "direct"};
};
template <>
struct FieldType<Copies> {
  static constexpr std::string_view name = "Copies";
  static constexpr std::array<std::string_view, 2> values = {"tma", "cp_async"};
};
template <>
struct FieldType<Requests> {
  static constexpr std::string_view name = "Requests";
  static constexpr std::array<std::string_view, 3> values = {"all", "many_queries", "few_queries"};
};

/// Legal numbers: every `step`-th from `low` to `high`.
struct LegalValues {
  int low = 0;
  int high = 0;
  int step = 1;

  constexpr bool has(int value) const { return value >= low && value <= high && (value - low) % step == 0; }
};
constexpr LegalValues range(int low, int high) { return {low, high}; }
constexpr LegalValues multiples(int step, int high) { return {step, high, step}; }

/// Text such as "1 to 4", "2 or 4", "a multiple of 16 from 16 to 256".
std::string to_string(const LegalValues& values);

/// How much alike configs are that differ in a field.
enum class Affects {
  buffers,    ///< only shared memory differs: registers are about equal
  registers,  ///< times are about equal: one timing predicts the other
  tiling,     ///< hardly alike
};

/// A config field: the single place that defines its name, meaning and values.
template <class Config>
struct ConfigField {
  std::string_view name;
  std::string_view cpp_type;  ///< in generated source
  std::string_view doc;       ///< one phrase with its unit, a comment in generated source
  std::span<const std::string_view> value_names;
  LegalValues legal;
  Affects affects;
  int sample;  ///< a legal value other than the default, for tests
  int (*get)(const Config&);
  void (*set)(Config&, int);

  bool is_word() const { return !value_names.empty(); }

  /// The value as text: "128", "ping_pong", "true".
  std::string print(const Config& config) const {
    const int value = get(config);
    const bool has_name = value >= 0 && static_cast<std::size_t>(value) < value_names.size();
    return has_name ? std::string(value_names[static_cast<std::size_t>(value)]) : std::to_string(value);
  }
  /// The value as C++: "128", "WarpgroupOrder::ping_pong", "true".
  std::string emit(const Config& config) const {
    return is_word() && cpp_type != "bool" ? fmt::format("{}::{}", cpp_type, print(config)) : print(config);
  }
  /// The legal values: "1 to 4", "free, ping_pong".
  std::string values() const {
    if (!is_word()) return to_string(legal);
    const auto first = static_cast<std::size_t>(legal.low), last = static_cast<std::size_t>(legal.high);
    return fmt::format("{}", fmt::join(value_names.subspan(first, last - first + 1), ", "));
  }
};

namespace detail {

template <class>
struct MemberPointer;
template <class Class, class Member>
struct MemberPointer<Member Class::*> {
  using Config = Class;
  using Value = Member;
};

struct Anything {
  template <class T>
  operator T() const;
};

}  // namespace detail

struct FieldFacts {
  LegalValues legal = {};  ///< all of named values unless set
  Affects affects = Affects::tiling;
  int sample = 0;  ///< for numbers, and types with more than two named values
};

/// The row of a member: field<&ForwardWgmma::stages_k>("stages_k", "buffers for K tiles", {...}).
template <auto member>
constexpr auto field(std::string_view name, std::string_view doc, FieldFacts facts) {
  using Config = typename detail::MemberPointer<decltype(member)>::Config;
  using Value = typename detail::MemberPointer<decltype(member)>::Value;
  using Type = FieldType<Value>;
  if (!Type::values.empty() && facts.legal.high == 0)
    facts.legal = range(0, static_cast<int>(Type::values.size()) - 1);
  if (Type::values.size() == 2) facts.sample = 1 - static_cast<int>(Config{}.*member);
  return ConfigField<Config>{
      .name = name,
      .cpp_type = Type::name,
      .doc = doc,
      .value_names = Type::values,
      .legal = facts.legal,
      .affects = facts.affects,
      .sample = facts.sample,
      .get = [](const Config& config) { return static_cast<int>(config.*member); },
      .set = [](Config& config, int value) { config.*member = static_cast<Value>(value); }};
}

/// Number of members of an aggregate, which is the size of its table of fields.
template <class Config, class... Members>
constexpr std::size_t member_count() {
  if constexpr (requires { Config{Members{}..., detail::Anything{}}; }) {
    return member_count<Config, Members..., detail::Anything>();
  } else {
    return sizeof...(Members);
  }
}

/// Whether two configs agree in all fields of class `least` and above.
template <class Config>
bool agree(std::span<const ConfigField<Config>> fields, const Config& a, const Config& b, Affects least) {
  for (const ConfigField<Config>& field : fields) {
    if (field.affects >= least && field.get(a) != field.get(b)) return false;
  }
  return true;
}

/// The first field with an illegal value: "stages_k = 5 must be 1 to 4"; empty if there is none.
template <class Config>
std::string range_rejection(std::span<const ConfigField<Config>> fields, const Config& config) {
  for (const ConfigField<Config>& field : fields) {
    if (!field.legal.has(field.get(config)))
      return fmt::format("{} = {} must be {}", field.name, field.print(config), field.values());
  }
  return "";
}

/// The fields as members of a generated Config, each with its meaning.
template <class Config>
std::string config_lines(std::span<const ConfigField<Config>> fields, const Config& config) {
  std::string text;
  for (const ConfigField<Config>& field : fields) {
    text += fmt::format("  static constexpr {} {} = {};  // {}\n", field.cpp_type, field.name,
                        field.emit(config), field.doc);
  }
  return text;
}

}  // namespace jit
