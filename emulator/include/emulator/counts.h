// Counts of a launch, by instruction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace jit::emulator {

/// Counts of one instruction, summed over all warps.
struct InstructionCounts {
  std::uint64_t warps = 0;         ///< times that a warp executed it
  std::uint64_t lanes = 0;         ///< times that a thread executed it
  std::uint64_t tensor_flops = 0;  ///< 2 · m · n · k
  std::uint64_t global_read_bytes = 0;
  std::uint64_t global_write_bytes = 0;
  std::uint64_t shared_read_bytes = 0;
  std::uint64_t shared_write_bytes = 0;
  std::uint64_t local_bytes = 0;
  std::uint64_t bank_wavefronts = 0;   ///< passes over the 32 banks by its shared accesses
  std::uint64_t ideal_wavefronts = 0;  ///< passes without bank conflicts
  std::uint64_t waits = 0;             ///< times that a warp had to wait at it

  InstructionCounts& operator+=(const InstructionCounts& other);
};

/// Counts of each instruction of the kernel, in the order of the text.
using Counts = std::vector<InstructionCounts>;

class Function;
/// A JSON object: totals, totals by instruction class, and an array with a row for each source line.
std::string counts_json(const Function& function, const Counts& counts);
/// The kernel's PTX with counts in front of each line that was executed.
std::string annotated_listing(const Function& function, const Counts& counts);

}  // namespace jit::emulator
