// Breaking a text in one place.
#pragma once

#include <stdexcept>
#include <string>

namespace jit::testing {

/// `text` with the `from` in it, which must stand there exactly once, replaced by `to`.
inline std::string mutated(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  if (place == std::string::npos || text.find(from, place + 1) != std::string::npos) {
    throw std::runtime_error("does not stand there exactly once: " + from);
  }
  return text.replace(place, from.size(), to);
}

}  // namespace jit::testing
