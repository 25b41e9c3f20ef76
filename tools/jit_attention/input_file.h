// Input files that a command reads completely.
#pragma once

#include <cstddef>
#include <string>

namespace jit::tool {

/// The bytes of a file or a pipe. Throws BadInput, naming it, when it cannot be read or exceeds `most` bytes.
std::string read_input(const std::string& path, std::size_t most);

}  // namespace jit::tool
