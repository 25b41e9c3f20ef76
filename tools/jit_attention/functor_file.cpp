#include "functor_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "command.h"

namespace jit::tool {
namespace {

constexpr std::size_t max_file_bytes = 1 << 20;

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// What follows "// key:" in a line; nothing when the line is not of that form.
std::optional<std::string_view> declaration(std::string_view line, std::string_view key) {
  line = trim(line);
  if (!line.starts_with("//")) return std::nullopt;
  line = trim(line.substr(2));
  if (!line.starts_with(key)) return std::nullopt;
  line = trim(line.substr(key.size()));
  if (!line.starts_with(":")) return std::nullopt;
  return trim(line.substr(1));
}

FunctorConstant parse_constant(const std::string& where, std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  const char* const end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto result = std::from_chars(text.data(), end, whole);
      result.ec == std::errc{} && result.ptr == end) {
    return whole;
  }
  double real = 0;
  if (const auto result = std::from_chars(text.data(), end, real);
      result.ec == std::errc{} && result.ptr == end) {
    return real;
  }
  throw BadInput(fmt::format("{}: '{}' is not true, false or a number", where, text));
}

void add_constant(FunctorText& functor, const std::string& where, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    throw BadInput(fmt::format("{}: a constant is declared as '// constant: name = value'", where));
  }
  const std::string name(trim(text.substr(0, equals)));
  const FunctorConstant value = parse_constant(where, trim(text.substr(equals + 1)));
  if (!functor.constants.emplace(name, value).second) {
    throw BadInput(fmt::format("{}: constant '{}' is declared twice", where, name));
  }
}

void add_tensor(FunctorText& functor, const std::string& where, std::string_view text) {
  const std::size_t space = text.find_first_of(" \t");
  if (space == std::string_view::npos) {
    throw BadInput(fmt::format("{}: a tensor is declared as '// tensor: name dtype'", where));
  }
  functor.tensors.push_back({std::string(text.substr(0, space)), parse_dtype(trim(text.substr(space)))});
}

}  // namespace

const char* const functor_file_help =
    "A file for --mask-file or --score-file holds the body of a C++ function. A mask returns whether query q "
    "of batch entry b and head h sees key k; a score returns the new value of `score`. seqlen_q, seqlen_kv "
    "and heads_q are there, too. Leading lines declare what else it uses:\n"
    "  // constant: window = 128        baked into the kernel: true, false, whole or real number\n"
    "  // tensor: ids int32             given at run time: bf16, fp16, fp32, int32, int64 or uint8\n"
    "What follows a line\n"
    "  // classify:\n"
    "is the body of a function of q_begin, q_end, k_begin, k_end that returns TileClass::empty, "
    "TileClass::full or TileClass::partial; it lets the kernel skip tiles. In a score, what follows a line\n"
    "  // derivative:\n"
    "returns the derivative with respect to `score`, which --backward then takes for granted; there "
    "'d_table[i] += x;' says that x is the derivative with respect to element i of the tensor table, which "
    "--d-tensor needs.";

FunctorText parse_functor(const std::string& name, std::string_view text) {
  FunctorText functor{.name = name, .body = {}};
  bool declaring = true;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const std::string where = fmt::format("functor '{}', line {}", name, ++line_number);
    at = std::min(end + 1, text.size());
    for (const auto& [part, body] :
         {std::pair{"classify", &FunctorText::classify}, {"derivative", &FunctorText::derivative}}) {
      if (declaration(line, part) != "") continue;
      functor.*body = std::string(line_number, '\n') + std::string(text.substr(at));
      return functor;
    }
    declaring = declaring && (trim(line).empty() || trim(line).starts_with("//"));
    if (declaring) {
      if (const auto constant = declaration(line, "constant")) add_constant(functor, where, *constant);
      if (const auto tensor = declaration(line, "tensor")) add_tensor(functor, where, *tensor);
    }
    functor.body += line;
    functor.body += '\n';
  }
  // Nothing but comments: an empty body, of which the library says what is wrong.
  if (declaring) functor.body.clear();
  return functor;
}

FunctorText read_functor(const std::string& argument) {
  const auto [name, path] = split_assignment("--mask-file or --score-file", argument);
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error)) {
    throw BadInput(fmt::format("{} cannot be read", path));
  }
  std::string text(max_file_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > max_file_bytes) {
    throw BadInput(fmt::format("{} is larger than {} bytes, too large for a functor", path, max_file_bytes));
  }
  return parse_functor(name, text);
}

std::pair<std::string, std::string> split_assignment(std::string_view option, const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == argument.size()) {
    throw BadInput(fmt::format("{} needs name=file, not '{}'", option, argument));
  }
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

}  // namespace jit::tool
