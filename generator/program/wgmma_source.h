// Writes the wgmma instructions of a kernel: inline assembly whose operand lists depend on the tile.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <jit/spec.h>

namespace jit {

/// A product of tiles: wgmma.mma_async m64nNk16 with fp32 accumulators (PTX ISA, "wgmma.mma_async"), one for
/// each step of the sum.
struct WgmmaProduct {
  DType dtype;  ///< of B, and of A unless a_dtype says else
  int n = 0;
  int steps = 1;
  bool accumulate = false;  ///< D += A B, else D = A B
  bool a_in_registers = false;
  bool b_along_rows =
      false;  ///< the sum runs along the rows of B's tile, not along its columns; of 16 bits alone
  /// Columns of D that an instruction makes at most, a multiple of those of a panel, where B is along rows; 0: all. The
  /// assembler wants all accumulators of one in the registers that a thread begins with.
  int columns_at_once = 0;
  std::optional<DType> a_dtype = {};  ///< as wide as dtype
  /// So many of the last columns of n, 8 or none, are another argument: `sums`, behind d.
  int sum_columns = 0;
};

/// A static member function `name` of a class. A, a PanelTile, in shared memory: name<A, B>(d, a, b) takes
/// the lower words of the first step's descriptors. A in registers: name<B>(d, a, b). All steps are one
/// statement: a statement for each step, with all accumulators as operands, takes NVRTC longer.
std::string wgmma_function(std::string_view name, std::string_view doc, const WgmmaProduct& product);

}  // namespace jit
