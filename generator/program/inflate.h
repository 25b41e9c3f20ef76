// Decompresses DEFLATE streams (RFC 1951), which CMake creates without another tool.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace jit {

/// The `size` bytes of a stream; nothing if damage is detected or the size differs, though damage may also
/// give other bytes. Safe for any stream.
std::optional<std::string> inflate(std::string_view stream, std::size_t size);

}  // namespace jit
