#include "number_options.h"

#include <charconv>

#include <fmt/format.h>

namespace jit::tool {
namespace {

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && read == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string read_whole(std::string& text, WholeRange range) {
  const auto accept = [&](auto number) {
    text = fmt::format("{}", number);
    return std::string();
  };
  const std::optional<std::int64_t> below = parse<std::int64_t>(text);
  if (below && *below < 0) {
    if (*below >= range.least) return accept(*below);
  } else if (const auto number = parse<std::uint64_t>(text)) {
    const bool is_enough = range.least <= 0 || *number >= static_cast<std::uint64_t>(range.least);
    if (is_enough && *number <= range.most) return accept(*number);
  }
  return fmt::format("is {}; it must be a whole number from {} to {}", text, range.least, range.most);
}

std::string read_real(std::string& text) {
  return parse<double>(text) ? "" : fmt::format("is {}; it must be a number, such as 0.25", text);
}

}  // namespace jit::tool
