#include "ptx/tokens.h"

#include <fmt/format.h>

namespace jit::emulator::ptx {

void Tokens::fail_expected(std::string_view what) const {
  throw PtxError(ahead_.line, fmt::format("expected {}, found {}", what, describe(ahead_)));
}

void Tokens::expect(std::string_view symbol, std::string_view where) {
  if (!accept(symbol)) fail_expected(fmt::format("'{}' {}", symbol, where));
}

std::string_view Tokens::expect_word(std::string_view what) {
  if (ahead_.kind != Token::Kind::word) fail_expected(what);
  return take().text;
}

void Tokens::expect_word_of(std::string_view word, std::string_view where) {
  if (!ahead_.is_word(word)) fail_expected(fmt::format("'{}' {}", word, where));
  take();
}

int Tokens::expect_integer(std::string_view what, int largest) {
  if (ahead_.kind != Token::Kind::integer) fail_expected(what);
  if (ahead_.bits > static_cast<std::uint64_t>(largest)) {
    throw PtxError(ahead_.line, fmt::format("{} is {}; at most {} is possible", what, ahead_.bits, largest));
  }
  return static_cast<int>(take().bits);
}

std::string_view Tokens::expect_string(std::string_view what) {
  if (ahead_.kind != Token::Kind::string) fail_expected(what);
  return take().text;
}

}  // namespace jit::emulator::ptx
