#include "command.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace jit::tool {

void add_all(CLI::App& app, Commands& commands) {
  for (const auto add : {add_info, add_compile, add_dump, add_run, add_tune, add_bench, add_show, add_emulate,
                         add_record, add_cache, add_warm})
    add(app, commands);
}

void print_json(const nlohmann::ordered_json& json) {
  print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_to_stdout(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string must_not_be_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

std::string must_be_positive(const std::string& text) {
  double number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = result.ec == std::errc{} && result.ptr == text.data() + text.size();
  if (is_number && number > 0 && std::isfinite(number)) return "";
  return fmt::format("is {}; it must be a positive number", text);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace jit::tool
