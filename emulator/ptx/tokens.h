// Tokens of a PTX text with one token of lookahead.
#pragma once

#include <string>
#include <string_view>

#include "ptx/lexer.h"
#include "ptx/syntax.h"

namespace jit::emulator::ptx {

/// Functions that expect something throw PtxError "expected WHAT, found '…'" with the token's line.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : lexer_(text), ahead_(lexer_.next()) {}

  const Token& peek() const { return ahead_; }
  int line() const { return ahead_.line; }

  Token take() {
    const Token taken = ahead_;
    ahead_ = lexer_.next();
    return taken;
  }
  /// Takes the symbol if it is next. Returns whether it was.
  bool accept(std::string_view symbol) {
    const bool found = ahead_.is(symbol);
    if (found) ahead_ = lexer_.next();
    return found;
  }
  bool accept_dotted(std::string_view text) {
    const bool found = ahead_.is_dotted(text);
    if (found) ahead_ = lexer_.next();
    return found;
  }
  /// `where` ends the sentence: "expected ';' " + where.
  void expect(std::string_view symbol, std::string_view where);
  /// `what` describes the word: "a label".
  std::string_view expect_word(std::string_view what);
  void expect_word_of(std::string_view word, std::string_view where);
  /// A number from 0 to `largest`.
  int expect_integer(std::string_view what, int largest);
  std::string_view expect_string(std::string_view what);

  /// Throws "expected WHAT, found '…'".
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  Lexer lexer_;
  Token ahead_;
};

}  // namespace jit::emulator::ptx
