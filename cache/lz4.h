// Blocks of LZ4 (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md): bytes in a third of their room.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace jit {

/// A block that stands for these bytes, which are at most 4 GB. Equal bytes give equal blocks.
std::vector<std::byte> compress(std::span<const std::byte> bytes);

/// The bytes that a block stands for; nothing when it is damaged, though damage may also give other bytes. Safe on any bytes.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> block);

}  // namespace jit
