// Initial values of variables (PTX ISA, "Initializers").
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {

/// Reads what stands behind the '=' into `variable`, whose type and name are known. `lengths` are those of
/// the array's dimensions, outermost first, empty for a scalar; a first one of 0 is to be counted, and is
/// set. Bytes are written up to the last one that is given. Throws PtxError; also when `variable.initial`
/// would have more than `most_bytes`.
void parse_initializer(Tokens& tokens, Variable& variable, std::uint64_t element_bytes,
                       std::vector<std::uint64_t>& lengths, std::uint64_t most_bytes);

}  // namespace jit::emulator::ptx
