// The text that CMake writes into the library: the templates one after another, compressed to a quarter.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace jit {

struct EmbeddedFile {
  std::string_view name;
  std::size_t size = 0;
};

struct EmbeddedText {
  std::span<const EmbeddedFile> files;  ///< in the order in which they follow one another
  std::string_view stream;              ///< of DEFLATE
};

EmbeddedText embedded_text();

}  // namespace jit
