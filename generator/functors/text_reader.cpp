#include "generator/functors/text_reader.h"

#include <cctype>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {

void TextReader::fail(const std::string& message) const {
  throw Error(ErrorCode::invalid_argument, "parse", std::string(what_),
              fmt::format("{} '{}', character {}: {}", what_, text_, at_ + 1, message));
}

bool TextReader::accept(std::string_view token) {
  skip_space();
  if (text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!accept(token)) fail(fmt::format("expected '{}'", token));
}

bool TextReader::at_end() {
  skip_space();
  return at_ == text_.size();
}

std::string TextReader::word() {
  skip_space();
  const std::size_t begin = at_;
  while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
                                text_[at_] == '-' || text_[at_] == '.')) {
    ++at_;
  }
  return std::string(text_.substr(begin, at_ - begin));
}

const FunctorText& TextReader::find_text(const std::vector<FunctorText>& texts) {
  expect("(");
  const std::string name = word();
  expect(")");
  std::string known;
  for (const FunctorText& text : texts) {
    if (text.name == name) return text;
    known += (known.empty() ? "" : ", ") + text.name;
  }
  fail(fmt::format("no text functor '{}' was given{}", name, known.empty() ? "" : "; given are " + known));
}

void TextReader::skip_space() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
}

}  // namespace jit
