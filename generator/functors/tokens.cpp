#include "generator/functors/tokens.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace jit {
namespace {

// Longest signs first.
constexpr std::array<std::string_view, 41> signs = {
    "<<=", ">>=", "::", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "&&",
    "||",  "==",  "!=", "<=", ">=", "<<", ">>", "->", "+",  "-",  "*",  "/",  "%",  "&",
    "|",   "^",   "~",  "!",  "<",  ">",  "=",  "?",  ":",  ";",  ",",  "(",  ")"};
constexpr std::string_view brackets = "[]{}";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

// End of a number such as 1'000, 0x1p-3f, 1.5e+3, whose exponent may have a sign.
std::size_t number_end(std::string_view body, std::size_t at) {
  const bool is_hexadecimal = body.substr(at, 2) == "0x" || body.substr(at, 2) == "0X";
  const auto is_exponent = [&](char c) {
    const int letter = std::tolower(static_cast<unsigned char>(c));
    return letter == 'p' || (letter == 'e' && !is_hexadecimal);
  };
  for (; at < body.size(); ++at) {
    const bool signs_exponent = (body[at] == '+' || body[at] == '-') && is_exponent(body[at - 1]);
    const bool separates = body[at] == '\'' && at + 1 < body.size() && is_word(body[at + 1]);
    if (!is_word(body[at]) && body[at] != '.' && !signs_exponent && !separates) break;
  }
  return at;
}

// Position of a backslash that continues a line, possibly followed by blanks as some compilers allow. It may
// be inside any token or comment.
std::size_t joined_line(std::string_view body) {
  for (std::size_t at = body.find('\\'); at != std::string_view::npos; at = body.find('\\', at + 1)) {
    const std::size_t next = body.find_first_not_of(" \t\r\f\v", at + 1);
    if (next == std::string_view::npos || body[next] == '\n') return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<Token> tokens_of(std::string_view body) {
  if (const std::size_t at = joined_line(body); at != std::string_view::npos) {
    const auto line = 1 + static_cast<int>(std::count(body.begin(), body.begin() + at, '\n'));
    return {{Token::Kind::other, body.substr(at, 1), line}, {Token::Kind::end, {}, line}};
  }
  std::vector<Token> tokens;
  int line = 1;
  std::size_t at = 0;
  const auto skip_to = [&](std::size_t end) {
    line += static_cast<int>(std::count(body.begin() + at, body.begin() + std::min(end, body.size()), '\n'));
    at = std::min(end, body.size());
  };
  const auto add = [&](Token::Kind kind, std::size_t end) {
    tokens.push_back({kind, body.substr(at, end - at), line});
    skip_to(end);
  };
  while (at < body.size()) {
    const std::string_view rest = body.substr(at);
    if (std::isspace(static_cast<unsigned char>(rest[0]))) {
      skip_to(at + 1);
    } else if (rest.starts_with("//")) {
      skip_to(std::min(body.find('\n', at), body.size()));
    } else if (rest.starts_with("/*")) {
      const std::size_t end = body.find("*/", at + 2);
      skip_to(end == std::string_view::npos ? body.size() : end + 2);
    } else if (is_digit(rest[0]) || (rest[0] == '.' && rest.size() > 1 && is_digit(rest[1]))) {
      add(Token::Kind::number, number_end(body, at));
    } else if (is_word(rest[0])) {
      add(Token::Kind::word, at + (std::find_if_not(rest.begin(), rest.end(), is_word) - rest.begin()));
    } else {
      const auto sign = std::find_if(signs.begin(), signs.end(),
                                     [&](std::string_view candidate) { return rest.starts_with(candidate); });
      const bool is_bracket = brackets.find(rest[0]) != std::string_view::npos;
      if (sign != signs.end()) {
        add(Token::Kind::sign, at + sign->size());
      } else {
        add(is_bracket ? Token::Kind::sign : Token::Kind::other, at + 1);
      }
    }
  }
  tokens.push_back({Token::Kind::end, {}, line});
  return tokens;
}

}  // namespace jit
