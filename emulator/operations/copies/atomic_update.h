// Updates of a word by atom, red and red.async (PTX ISA, "Parallel Synchronization and Communication
// Instructions: atom").
#pragma once

#include <cstdint>
#include <string_view>

#include "machine/types.h"

namespace jit::emulator {

/// The new value of a word from the old one and the operands. Values of fewer than 64 bits are zero-extended.
using AtomicUpdate = std::uint64_t (*)(std::uint64_t old, std::uint64_t b, std::uint64_t c);

/// Null: PTX has no such operation for this type. `in_shared`: f32 additions keep subnormals there, but flush
/// them in global memory.
AtomicUpdate find_atomic_update(std::string_view operation, Type type, bool in_shared);

}  // namespace jit::emulator
