// What a launch did, by instruction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  std::uint64_t bank_wavefronts = 0;   ///< passes over the 32 banks that its shared accesses took
  std::uint64_t ideal_wavefronts = 0;  ///< passes that they would take without conflicts
  std::uint64_t waits = 0;             ///< times that a warp had to wait at it

  InstructionCounts& operator+=(const InstructionCounts& other);
};

/// Parallel to Kernel::code.
using Counts = std::vector<InstructionCounts>;

struct Kernel;
/// One JSON object: totals, totals by instruction class, and an array with a row for each source line.
std::string counts_json(const Kernel& kernel, const Counts& counts);
/// The kernel's PTX with counts in front of each line that was executed. `ptx` is the text it was loaded
/// from.
std::string annotated_listing(const Kernel& kernel, const Counts& counts, std::string_view ptx);

}  // namespace jit::emulator
