// Operands of instructions (PTX ISA, "Instruction Operands").
#pragma once

#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {

/// Reads one operand. Names stay as written. Throws PtxError.
Operand parse_operand(Tokens& tokens);
/// Reads the results or the arguments of a call, with the parentheses around them, as a vector; it may be
/// empty.
Operand parse_call_list(Tokens& tokens);

}  // namespace jit::emulator::ptx
