/// @file
/// What the assembler says of a kernel: registers, spills, stack, shared memory, remarks.
///
/// @code
/// const jit::ResourceUsage usage = jit::compile({.head_dim = 64}, jit::parse_arch("sm_80")).resources();
/// assert(usage.registers > 0 && usage.spill_bytes() == 0 && !usage.serializes_wgmma() && usage.is_clean());
/// @endcode
#pragma once

#include <string>
#include <vector>

namespace jit {

/// Resources of one kernel.
struct ResourceUsage {
  int registers = 0;                 ///< per thread
  int spill_store_bytes = 0;         ///< per thread
  int spill_load_bytes = 0;          ///< per thread
  int stack_bytes = 0;               ///< per thread; local memory, spills included
  int static_smem_bytes = 0;         ///< per block
  int barriers = 0;                  ///< named barriers
  std::vector<std::string> remarks;  ///< warnings and advice of the assembler, one line each

  /// Bytes that a thread spills: stores plus loads.
  int spill_bytes() const { return spill_store_bytes + spill_load_bytes; }
  /// Whether the assembler had to put waits between asynchronous multiplications: remarks C75xx.
  bool serializes_wgmma() const;
  /// Neither spills nor serialized multiplications. Local memory without spills is what the program asks for:
  /// an array in a text of the user, which every config would have.
  bool is_clean() const { return spill_bytes() == 0 && !serializes_wgmma(); }
  bool operator==(const ResourceUsage&) const = default;  ///< member by member
};

}  // namespace jit
