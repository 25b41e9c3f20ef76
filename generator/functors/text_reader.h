// Tokenizes the notation of masks, scores and outputs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>

namespace jit {

/// Reads a text from its beginning; `what` names it in errors.
class TextReader {
 public:
  TextReader(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  /// Throws Error invalid_argument that points at the current position.
  [[noreturn]] void fail(const std::string& message) const;

  bool accept(std::string_view token);
  void expect(std::string_view token);
  bool at_end();
  /// The next letters, digits, '_', '-' and '.'; may be empty.
  std::string word();
  /// The element of `texts` that "(name)" names.
  const FunctorText& find_text(const std::vector<FunctorText>& texts);

 protected:
  void skip_space();

  std::string_view what_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace jit
