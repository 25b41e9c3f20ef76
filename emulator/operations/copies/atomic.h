// Modifiers and operands that atom, red and red.async share.
#pragma once

#include <cstddef>
#include <vector>

#include "machine/decoder.h"
#include "machine/lane_memory.h"
#include "operations/copies/atomic_update.h"

namespace jit::emulator {

/// The operation on each element, and the registers of the operands, one for each element.
struct AtomicOperands {
  Type type = Type::b32;
  AtomicUpdate in_global = nullptr, in_shared = nullptr;
  bool has_c = false;  ///< cas: compares with b, stores c
  std::vector<Slot> to, b, c;

  std::uint32_t element_bytes() const { return static_cast<std::uint32_t>(bits(type)) / 8; }
  std::uint32_t bytes() const { return element_bytes() * static_cast<std::uint32_t>(b.size()); }
};

/// Takes .op, .noftz, .vec, .type, and the operands b and c from `first`. Throws for a combination that PTX
/// lacks; `has_result` distinguishes atom from red.
AtomicOperands take_atomic(Decoder& decoder, std::size_t first, bool has_result);

}  // namespace jit::emulator
