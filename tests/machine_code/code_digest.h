// A digest of the parts of a cubin that a GPU runs: it tells whether machine code moved.
#pragma once

#include <cstddef>
#include <span>

#include "cache/digest.h"

namespace jit::machine_code {

/// Digest of the instructions of all kernels of a cubin (.text), and of the constants that the assembler put beside them
/// (.nv.constant2). Names, line information and debug sections are left out. Throws std::runtime_error where this is no
/// whole ELF image, or one without instructions.
Digest code_digest(std::span<const std::byte> cubin);

}  // namespace jit::machine_code
