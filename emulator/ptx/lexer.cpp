#include "ptx/lexer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include <fmt/format.h>

#include "ptx/syntax.h"

namespace jit::emulator::ptx {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 30;
constexpr std::size_t longest_quote = 48;

constexpr std::array<bool, 256> word_characters = [] {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = table[c - 'a' + 'A'] = true;
  table['_'] = table['$'] = table['%'] = true;
  return table;
}();

bool is_word_character(char c) { return word_characters[static_cast<unsigned char>(c)]; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

std::string quote(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, longest_quote)) {
    if (c >= ' ' && c <= '~') {
      shown += c;
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return shown + (text.size() > longest_quote ? "…'" : "'");
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the text";
    case Token::Kind::string:
      return "the string " + quote(token.text);
    default:
      return quote(token.text);
  }
}

Lexer::Lexer(std::string_view text) : text_(text) {
  if (text.size() > longest_text) {
    throw PtxError(0, fmt::format("a text of {} bytes; at most {} can be read", text.size(), longest_text));
  }
  // NVRTC's size includes the terminating zero.
  while (!text_.empty() && text_.back() == '\0') text_.remove_suffix(1);
}

Token Lexer::make(Token::Kind kind, std::size_t end) {
  Token token{.kind = kind, .text = text_.substr(position_, end - position_), .line = line_};
  position_ = end;
  return token;
}

void Lexer::fail_at_word(const char* rule) const {
  std::size_t end = position_ + 1;
  while (end < text_.size() && is_word_character(text_[end])) ++end;
  throw PtxError(line_, fmt::format("{}: {}", quote(text_.substr(position_, end - position_)), rule));
}

void Lexer::skip_space_and_comments() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
      ++position_;
    } else if (c == '/' && at(position_ + 1, '/')) {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (c == '/' && at(position_ + 1, '*')) {
      const std::size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) throw PtxError(line_, "a comment '/*' that no '*/' ends");
      for (; position_ < end + 2; ++position_) line_ += text_[position_] == '\n' ? 1 : 0;
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_space_and_comments();
  if (position_ >= text_.size()) return make(Token::Kind::end, text_.size());
  const char c = text_[position_];
  std::size_t end = position_ + 1;
  if (is_digit(c)) return number();
  if (is_word_character(c)) {
    while (end < text_.size() && is_word_character(text_[end])) ++end;
    if (c == '%' && end == position_ + 1) return make(Token::Kind::symbol, end);
    return make(Token::Kind::word, end);
  }
  if (c == '.' && end < text_.size() && is_word_character(text_[end])) {
    while (end < text_.size()) {
      if (is_word_character(text_[end])) {
        ++end;
      } else if (text_[end] == ':' && at(end + 1, ':') && end + 2 < text_.size() &&
                 is_word_character(text_[end + 2])) {
        end += 2;
      } else {
        break;
      }
    }
    return make(Token::Kind::dotted, end);
  }
  if (c == '"') return string();
  constexpr std::string_view doubled = "<>&|=";
  if ((doubled.find(c) != std::string_view::npos && at(end, c)) ||
      ((c == '<' || c == '>' || c == '!') && at(end, '='))) {
    return make(Token::Kind::symbol, end + 1);
  }
  constexpr std::string_view single = "{}[]()<>,;:@!|+-*/&^~=?.";
  if (single.find(c) != std::string_view::npos) return make(Token::Kind::symbol, end);
  if (c == '#') throw PtxError(line_, "preprocessor lines ('#') are not PTX that can be run");
  throw PtxError(line_,
                 fmt::format("the character {} has no meaning in PTX", quote(text_.substr(position_, 1))));
}

Token Lexer::string() {
  const std::size_t end = text_.find_first_of("\"\n", position_ + 1);
  if (end == std::string_view::npos || text_[end] != '"') {
    throw PtxError(line_, "a string that is not closed on its line");
  }
  Token token = make(Token::Kind::string, end + 1);
  token.text = token.text.substr(1, token.text.size() - 2);
  return token;
}

Token Lexer::number() {
  int base = 10;
  std::size_t digits = position_;
  if (text_[position_] == '0' && position_ + 1 < text_.size()) {
    switch (text_[position_ + 1] | 0x20) {
      case 'f':
        return hexadecimal_real(8);
      case 'd':
        return hexadecimal_real(16);
      case 'x':
        base = 16;
        digits += 2;
        break;
      case 'b':
        base = 2;
        digits += 2;
        break;
      default:
        base = is_digit(text_[position_ + 1]) ? 8 : 10;
    }
  }
  // Digits beyond the base are taken too, so that the whole number is refused.
  const int accepted = base == 16 ? 16 : 10;
  const auto radix = static_cast<std::uint64_t>(base);
  std::uint64_t value = 0;
  bool fits = true;
  std::size_t end = digits;
  for (; end < text_.size() && digit_value(text_[end]) < accepted; ++end) {
    const auto digit = static_cast<std::uint64_t>(digit_value(text_[end]));
    fits = fits && digit < radix && value <= (UINT64_MAX - digit) / radix;
    if (fits) value = value * radix + digit;
  }
  const bool may_be_real = base == 10 || base == 8;
  if (may_be_real && end < text_.size() && (text_[end] == '.' || (text_[end] | 0x20) == 'e')) {
    return decimal_real(end);
  }
  if (end == digits) fail_at_word("a number without digits");
  if (!fits) fail_at_word("not a whole number of 64 bits, or with digits that its base does not have");
  const bool has_suffix = at(end, 'U');
  if (has_suffix) ++end;
  if (end < text_.size() && is_word_character(text_[end])) {
    fail_at_word("not a number: expected digits, then at most the suffix U");
  }
  Token token = make(Token::Kind::integer, end);
  token.bits = value;
  token.is_unsigned = has_suffix || value > static_cast<std::uint64_t>(INT64_MAX);
  return token;
}

// `end`: after the leading digits.
Token Lexer::decimal_real(std::size_t end) {
  if (at(end, '.')) ++end;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  if (end < text_.size() && (text_[end] | 0x20) == 'e') {
    ++end;
    if (at(end, '+') || at(end, '-')) ++end;
    while (end < text_.size() && is_digit(text_[end])) ++end;
  }
  double value = 0;
  const char* const stop = text_.data() + end;
  const auto [parsed, error] = std::from_chars(text_.data() + position_, stop, value);
  if (error == std::errc::result_out_of_range) fail_at_word("a number beyond the range of double precision");
  if (error != std::errc() || parsed != stop || (end < text_.size() && is_word_character(text_[end]))) {
    fail_at_word("not a number: expected a form such as 1.5 or 2e-3");
  }
  Token token = make(Token::Kind::real, end);
  token.bits = std::bit_cast<std::uint64_t>(value);
  return token;
}

// 0f and 8 digits, 0d and 16 digits.
Token Lexer::hexadecimal_real(std::size_t digits) {
  std::size_t end = position_ + 2;
  std::uint64_t value = 0;
  for (; end < text_.size() && digit_value(text_[end]) < 16 && end - position_ - 2 < digits; ++end) {
    value = value * 16 + static_cast<std::uint64_t>(digit_value(text_[end]));
  }
  if (end - position_ - 2 != digits || (end < text_.size() && is_word_character(text_[end]))) {
    fail_at_word(digits == 8 ? "0f must be followed by exactly 8 hexadecimal digits"
                             : "0d must be followed by exactly 16 hexadecimal digits");
  }
  Token token = make(Token::Kind::real, end);
  token.bits = value;
  token.is_single = digits == 8;
  return token;
}

}  // namespace jit::emulator::ptx
