// Initial values of variables (PTX ISA, "Initializers").
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {

/// Parses an initializer after '=' into `variable`, whose type and name are set. `lengths` are the array's
/// dimensions, outermost first, empty for a scalar; a first length of 0 is counted and set. Bytes are written
/// up to the last given one. Throws PtxError; also when `variable.initial` would have more than `most_bytes`.
void parse_initializer(Tokens& tokens, Variable& variable, std::uint64_t element_bytes,
                       std::vector<std::uint64_t>& lengths, std::uint64_t most_bytes);

}  // namespace jit::emulator::ptx
