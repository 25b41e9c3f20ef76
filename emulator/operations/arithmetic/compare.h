// Common code of the comparison family.
#pragma once

#include <memory>

#include "machine/decoder.h"

namespace jit::emulator {

/// and, or, xor, not and mov on predicates; null for another instruction.
std::unique_ptr<const Operation> decode_predicate_logic(Decoder& decoder);

}  // namespace jit::emulator
