// LZ4 blocks (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md): a third of the size.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace jit {

/// Compresses at most 4 GB to a block. Deterministic.
std::vector<std::byte> compress(std::span<const std::byte> bytes);

/// Decompresses a block; nothing if damage is detected, which it need not be. Safe for any bytes.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> block);

}  // namespace jit
