// Writes the wgmma instructions of a kernel: inline assembly whose operand lists depend on the tile.
#pragma once

#include <string>
#include <string_view>

#include <jit/spec.h>

namespace jit {

/// wgmma.mma_async m64nNk16 with fp32 accumulators (PTX ISA, "wgmma.mma_async").
struct WgmmaInstruction {
  DType dtype;
  int n = 0;
  bool a_in_registers = false;
  bool b_along_rows = false;  ///< the sum runs along the rows of B's tile, not along its columns
};

/// A static member function `name` of a Config: name(d, a, b, accumulate) for A in shared memory, and
/// name(d, a, b) for A in registers, which accumulates.
std::string wgmma_function(std::string_view name, std::string_view doc, const WgmmaInstruction& instruction);

}  // namespace jit
