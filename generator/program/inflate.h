// Streams of DEFLATE (RFC 1951), which CMake writes without a tool of its own.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace jit {

/// The `size` bytes that a stream stands for; nothing when it is damaged or stands for another number of bytes, though
/// damage may also give other bytes. Safe on any bytes.
std::optional<std::string> inflate(std::string_view stream, std::size_t size);

}  // namespace jit
