// Numeric options: decimal digits within a range, with one error sentence for all else.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

namespace jit::tool {

/// The range that an option of whole numbers accepts.
struct WholeRange {
  std::int64_t least = 0;
  std::uint64_t most = 0;
};

/// The number type of an option's values.
template <class Value>
struct NumberOf {
  using type = Value;
};
template <class Value>
struct NumberOf<std::optional<Value>> : NumberOf<Value> {};
template <class Value>
struct NumberOf<std::vector<Value>> : NumberOf<Value> {};
template <class Value>
using number_of = typename NumberOf<Value>::type;

/// The full range of `Number`.
template <class Number>
constexpr WholeRange all_of() {
  return {std::numeric_limits<Number>::min(), static_cast<std::uint64_t>(std::numeric_limits<Number>::max())};
}

/// Parses `text` as a decimal number, leading zeros allowed, and rewrites it for CLI11. Returns the fault;
/// empty: none.
std::string read_whole(std::string& text, WholeRange range);
/// Checks that `text` is a real number; leaves it unchanged.
std::string read_real(std::string& text);

/// Adds an option with an integer, or several for a vector.
template <class Value>
CLI::Option* add_whole_option(CLI::App& app, const std::string& name, Value& value, const std::string& doc,
                              WholeRange range = all_of<number_of<Value>>()) {
  static_assert(std::is_integral_v<number_of<Value>>);
  const auto read = [range](std::string& text) { return read_whole(text, range); };
  return app.add_option(name, value, doc)->transform(CLI::Validator(read, ""));
}

/// Adds an option with a real number.
template <class Value>
CLI::Option* add_real_option(CLI::App& app, const std::string& name, Value& value, const std::string& doc) {
  static_assert(std::is_floating_point_v<number_of<Value>>);
  return app.add_option(name, value, doc)->transform(CLI::Validator(read_real, ""));
}

}  // namespace jit::tool
