// Files that a command reads as a whole.
#pragma once

#include <cstddef>
#include <string>

namespace jit::tool {

/// The bytes of a file or a pipe. Throws BadInput, naming it, where it cannot be read or has more than `most`.
std::string read_input(const std::string& path, std::size_t most);

}  // namespace jit::tool
