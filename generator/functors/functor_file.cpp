#include <jit/functor_file.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>

namespace jit {
namespace {

[[noreturn]] void refuse_declaration(const FunctorText& functor, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "parse", functor.name, message);
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The text after "// key:" in a line; nothing if the line has another form.
std::optional<std::string_view> declaration(std::string_view line, std::string_view key) {
  line = trim(line);
  if (!line.starts_with("//")) return std::nullopt;
  line = trim(line.substr(2));
  if (!line.starts_with(key)) return std::nullopt;
  line = trim(line.substr(key.size()));
  if (!line.starts_with(":")) return std::nullopt;
  return trim(line.substr(1));
}

FunctorConstant parse_constant(const FunctorText& functor, const std::string& where, std::string_view text) {
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
  refuse_declaration(functor, fmt::format("{}: '{}' is not true, false or a number", where, text));
}

void add_constant(FunctorText& functor, const std::string& where, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    refuse_declaration(functor,
                       fmt::format("{}: a constant is declared as '// constant: name = value'", where));
  }
  const std::string name(trim(text.substr(0, equals)));
  const FunctorConstant value = parse_constant(functor, where, trim(text.substr(equals + 1)));
  if (!functor.constants.emplace(name, value).second) {
    refuse_declaration(functor, fmt::format("{}: constant '{}' is declared twice", where, name));
  }
}

void add_tensor(FunctorText& functor, const std::string& where, std::string_view text) {
  const std::size_t space = text.find_first_of(" \t");
  if (space == std::string_view::npos) {
    refuse_declaration(functor, fmt::format("{}: a tensor is declared as '// tensor: name dtype'", where));
  }
  functor.tensors.push_back(
      parse_functor_tensor(std::string(text.substr(0, space)), trim(text.substr(space))));
}

}  // namespace

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
  // Only comments: an empty body, for which validation reports an error.
  if (declaring) functor.body.clear();
  return functor;
}

}  // namespace jit
