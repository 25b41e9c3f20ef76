// Tokens of a functor's body.
#pragma once

#include <string_view>
#include <vector>

namespace jit {

struct Token {
  enum class Kind { word, number, sign, other, end };
  Kind kind = Kind::end;
  std::string_view text;  ///< part of the body
  int line = 1;           ///< from 1
};

/// Tokens without comments; the last one has kind `end`. C++ tokens that analysis does not support (character
/// literals, continued lines) have kind `other`.
std::vector<Token> tokens_of(std::string_view body);

}  // namespace jit
