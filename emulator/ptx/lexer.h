// Tokens of PTX text (PTX ISA, "Syntax").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace jit::emulator::ptx {

struct Token {
  enum class Kind {
    end,
    word,    ///< identifier: "%r1", "mov", "$L__BB0_2", "_"
    dotted,  ///< ".shared::cta", ".x4": the dot and its word
    integer,
    real,
    string,  ///< `text` without the quotes
    symbol,  ///< an operator or a bracket
  };
  Kind kind = Kind::end;
  std::string_view text = {};
  int line = 1;
  std::uint64_t bits = 0;    ///< of `integer`; of `real` the IEEE double, or the single's when `is_single`
  bool is_single = false;    ///< a `real` written as 0f…
  bool is_unsigned = false;  ///< an `integer` with suffix U, or too large for a signed one

  bool is(std::string_view symbol_text) const { return kind == Kind::symbol && text == symbol_text; }
  bool is_dotted(std::string_view dotted_text) const { return kind == Kind::dotted && text == dotted_text; }
  bool is_word(std::string_view word) const { return kind == Kind::word && text == word; }
};

/// "'mov'", "the end of the text", …: for messages. Long ones are cut, odd bytes written as \x7f.
std::string describe(const Token& token);

/// Cuts a text, which must outlive it and its tokens. Skips white space and comments.
class Lexer {
 public:
  explicit Lexer(std::string_view text);

  /// The next token; `end` repeatedly after the last. Throws PtxError.
  Token next();

 private:
  void skip_space_and_comments();
  bool at(std::size_t index, char wanted) const { return index < text_.size() && text_[index] == wanted; }
  Token number();
  Token decimal_real(std::size_t begin);
  Token hexadecimal_real(std::size_t digits);
  Token string();
  Token make(Token::Kind kind, std::size_t end);
  [[noreturn]] void fail_at_word(const char* rule) const;

  std::string_view text_;
  std::size_t position_ = 0;
  int line_ = 1;
};

}  // namespace jit::emulator::ptx
