// How addresses are laid out on the emulated device (PTX leaves it open).
#pragma once

#include <cstdint>

#include <emulator/memory.h>

namespace jit::emulator {

// Generic addresses. Global ones, from global_begin, lie below all windows.
inline constexpr std::uint64_t shared_window = global_end;
inline constexpr std::uint64_t local_window = 0x0000'7100'0000'0000;
inline constexpr std::uint64_t param_window = 0x0000'7200'0000'0000;
inline constexpr std::uint64_t window_bytes = 0x0000'0001'0000'0000;

inline bool in_window(std::uint64_t address, std::uint64_t window) {
  return address >= window && address - window < window_bytes;
}

// Addresses in .shared are 32 bits wide, as silicon has them: bits 24 and up are the rank of a block in the cluster, also
// in addresses of the own block. Offsets begin at `shared_begin`, so that 0 is no address.
inline constexpr std::uint32_t shared_begin = 1024;
inline constexpr std::uint32_t shared_rank_shift = 24;
inline constexpr std::uint32_t shared_offset_mask = (1u << shared_rank_shift) - 1;

/// Address in .shared of the first byte of a block.
constexpr std::uint32_t shared_base(unsigned rank) { return shared_begin + (rank << shared_rank_shift); }

}  // namespace jit::emulator
