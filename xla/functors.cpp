#include "xla/functors.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "generator/tensors/tensor_checks.h"
#include "xla/attributes.h"

namespace jit::xla {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc{} || result.ptr != end) return {};
  return number;
}

FunctorConstant constant_in(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  if (const auto whole = number_in<std::int64_t>(text)) return *whole;
  if (const auto real = number_in<double>(text)) return *real;
  refuse("constants", fmt::format("holds '{}', which is not true, false or a number", text));
}

// Both sides of the first `mark`.
std::pair<std::string_view, std::string_view> sides(std::string_view text, char mark, const char* attribute) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos)
    refuse(attribute, fmt::format("holds '{}', without a '{}' behind the name", text, mark));
  return {trim(text.substr(0, at)), trim(text.substr(at + 1))};
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (const std::string_view part = trim(text.substr(0, end)); !part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

FunctorText read_functor(const Attributes& attributes) {
  FunctorText functor;
  for (const Attribute& attribute : all_of(attributes)) {
    const std::string text(attribute.text());
    if (attribute.name() == "name") {
      functor.name = text;
    } else if (attribute.name() == "body") {
      functor.body = text;
    } else if (attribute.name() == "classify") {
      functor.classify = text;
    } else if (attribute.name() == "derivative") {
      functor.derivative = text;
    } else if (attribute.name() == "constants") {
      for (const std::string& constant : split(text, ',')) {
        const auto [name, value] = sides(constant, '=', "constants");
        functor.constants.emplace(name, constant_in(value));
      }
    } else if (attribute.name() == "tensors") {
      for (const std::string& tensor : split(text, ',')) {
        const auto [name, dtype] = sides(tensor, ' ', "tensors");
        functor.tensors.push_back(parse_functor_tensor(std::string(name), dtype));
      }
    } else {
      refuse_unknown(attribute, "name, body, classify, derivative, constants and tensors");
    }
  }
  return functor;
}

}  // namespace jit::xla
