// The words and signs of masks, scores and outputs as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <jit/functor_text.h>

namespace jit {

/// Reads a text from its beginning; errors call it `what`.
class TextReader {
 public:
  TextReader(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  /// Throws Error invalid_argument that points at the place.
  [[noreturn]] void fail(const std::string& message) const;

  bool accept(std::string_view token);
  void expect(std::string_view token);
  bool at_end();
  /// The letters, digits, '_', '-' and '.' that follow; empty where there is none.
  std::string word();
  /// The one of `texts` that "(name)" names.
  const FunctorText& find_text(const std::vector<FunctorText>& texts);

 protected:
  void skip_space();

  std::string_view what_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace jit
