// Writes a kernel's wgmma instructions: inline assembly whose operand lists depend on the tile.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/program/program.h"

namespace jit {

/// A product of tiles by wgmma.mma_async m64nNk16 with fp32 accumulators (PTX ISA, "wgmma.mma_async"), one
/// per step along k.
struct WgmmaProduct {
  DType dtype;  ///< of B, and of A without a_dtype
  int n = 0;
  int steps = 1;
  bool accumulate = false;  ///< D += A B, else D = A B
  bool a_in_registers = false;
  bool b_along_rows =
      false;  ///< k runs along the rows of B's tile instead of along its columns; only with 16 bits
  /// The most columns of D per instruction, a multiple of a panel's, if B is along rows; 0: all. ptxas needs
  /// all accumulators of an instruction in the launch's registers.
  int columns_at_once = 0;
  std::optional<DType> a_dtype = {};  ///< as wide as dtype
  /// The last columns of n, 8 or none, are a separate argument `sums` after d.
  int sum_columns = 0;
};

/// A static member function `name` of a class. With A, a PanelTile, in shared memory: name<A, B>(d, a, b)
/// takes the low words of the first step's descriptors; with A in registers: name<B>(d, a, b). All steps are
/// one asm statement, which NVRTC compiles faster than one per step.
std::string wgmma_function(std::string_view name, std::string_view doc, const WgmmaProduct& product);

/// The header "wgmma_products.cuh" of a program, with these functions in a struct WgmmaProducts.
SourceFile wgmma_products_file(std::string_view functions);

}  // namespace jit
