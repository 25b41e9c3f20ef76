// Identifies builds of a library without loading them.
#pragma once

#include <string>

namespace jit {

/// The GNU build-id of an ELF file in hex; for a file without one, its size and a hash of its first 64 KiB.
/// Reads a few KiB; maps nothing. Throws Error io_error when the file cannot be read.
std::string build_id(const std::string& path);

}  // namespace jit
