// Common code of the move family.
#pragma once

#include <memory>

#include "machine/decoder.h"

namespace jit::emulator {

/// cvta, isspacep, mapa, getctarank; null for another opcode.
std::unique_ptr<const Operation> decode_address(Decoder& decoder);

}  // namespace jit::emulator
