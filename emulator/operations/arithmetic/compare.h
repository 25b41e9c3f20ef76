// Common code of the comparison family.
#pragma once

#include <memory>

#include "machine/decoder.h"

namespace jit::emulator {

/// and, or, xor, not and mov of predicates; null for other instructions.
std::unique_ptr<const Operation> decode_predicate_logic(Decoder& decoder);

}  // namespace jit::emulator
