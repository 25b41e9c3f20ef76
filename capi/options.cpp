#include "capi/options.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit::c {
namespace {

[[noreturn]] void refuse_option(const std::string& name, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "parse", name.empty() ? "spec" : "spec." + name,
              fmt::format("spec: {}", message));
}

// The name of a field: "head_dim" of "head-dim".
std::string field_of(std::string option) {
  std::replace(option.begin(), option.end(), '-', '_');
  return option;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Words separated by blanks; quotes protect blanks.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    std::string word;
    while (at < text.size() && !is_blank(text[at])) {
      const char quote = text[at];
      if (quote != '\'' && quote != '"') {
        word += text[at++];
        continue;
      }
      const std::size_t end = text.find(quote, at + 1);
      if (end == std::string_view::npos)
        refuse_option("", fmt::format("a {} is never closed: {}", quote, text.substr(at)));
      word += text.substr(at + 1, end - at - 1);
      at = end + 1;
    }
    words.push_back(std::move(word));
  }
  return words;
}

std::string names_of(const std::vector<Option>& options) {
  std::string names;
  for (const Option& option : options) names += (names.empty() ? "--" : ", --") + option.name;
  return names;
}

template <class Number>
Number number_of(std::string_view text, const char* kind) {
  Number value{};
  const auto [end, trouble] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (trouble != std::errc{} || end != text.data() + text.size() || text.empty())
    throw Error(ErrorCode::invalid_argument, "parse", "", fmt::format("it must be {}", kind));
  return value;
}

}  // namespace

void read_options(std::string_view text, const std::vector<Option>& options) {
  std::vector<const Option*> seen;
  const std::vector<std::string> words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--"))
      refuse_option("", fmt::format("'{}' is no option; options begin with --, and quotes hold a value with "
                                    "spaces together",
                                    words[i]));
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto option = std::ranges::find(options, name, &Option::name);
    if (option == options.end())
      refuse_option("", fmt::format("there is no option --{}; there are {}", name, names_of(options)));
    if (std::ranges::find(seen, &*option) != seen.end())
      refuse_option(field_of(name), fmt::format("--{} is given twice", name));
    seen.push_back(&*option);
    std::string value = "true";
    if (equals != std::string::npos) {
      value = words[i].substr(equals + 1);
    } else if (!option->is_truth) {
      if (++i == words.size()) refuse_option(field_of(name), fmt::format("--{} needs a value", name));
      value = words[i];
    }
    try {
      option->set(value);
    } catch (const Error& error) {
      throw Error(error.code(), "parse", "spec." + field_of(name),
                  fmt::format("spec: --{} is '{}'; {}", name, value, error.message()));
    }
  }
}

Option whole_option(std::string name, int& value) {
  return {std::move(name), false,
          [&](std::string_view text) { value = number_of<int>(text, "a whole number"); }};
}

Option real_option(std::string name, float& value) {
  return {std::move(name), false, [&](std::string_view text) { value = number_of<float>(text, "a number"); }};
}

Option truth_option(std::string name, bool& value) {
  return {std::move(name), true, [&](std::string_view text) {
            if (text != "true" && text != "false")
              throw Error(ErrorCode::invalid_argument, "parse", "", "it must be true or false");
            value = text == "true";
          }};
}

Option dtype_option(std::string name, DType& value) {
  return {std::move(name), false, [&](std::string_view text) { value = parse_dtype(text); }};
}

}  // namespace jit::c
