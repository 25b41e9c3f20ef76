// Text that CMake embeds in the library: the concatenated templates, compressed to a quarter.
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
  std::span<const EmbeddedFile> files;  ///< in the order of concatenation
  std::string_view stream;              ///< DEFLATE stream
};

EmbeddedText embedded_text();

}  // namespace jit
