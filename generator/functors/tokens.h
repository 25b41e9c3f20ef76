// Words, numbers and signs of a functor's body.
#pragma once

#include <string_view>
#include <vector>

namespace jit {

struct Token {
  enum class Kind { word, number, sign, other, end };
  Kind kind = Kind::end;
  std::string_view text;  ///< of the body
  int line = 1;           ///< counted from 1
};

/// Without comments; the last one is of kind `end`. What C++ has and texts that are followed have not (literals of
/// characters, lines that go on behind a backslash) is of kind `other`.
std::vector<Token> tokens_of(std::string_view body);

}  // namespace jit
