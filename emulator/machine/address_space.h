// Address layout of the emulated device (PTX leaves it open).
#pragma once

#include <cstdint>

#include <emulator/memory.h>

namespace jit::emulator {

// Generic addresses. Global memory, from global_begin, precedes all windows.
inline constexpr std::uint64_t shared_window = global_end;
inline constexpr std::uint64_t local_window = 0x0000'7100'0000'0000;
inline constexpr std::uint64_t param_window = 0x0000'7200'0000'0000;
inline constexpr std::uint64_t window_bytes = 0x0000'0001'0000'0000;

inline bool in_window(std::uint64_t address, std::uint64_t window) {
  return address >= window && address - window < window_bytes;
}

// Addresses in .shared have 32 bits, as on hardware: bits 24 and up are a block's rank in the cluster, also
// in addresses of the block itself. Offsets begin at `shared_begin`, so that 0 is no valid address.
inline constexpr std::uint32_t shared_begin = 1024;
inline constexpr std::uint32_t shared_rank_shift = 24;
inline constexpr std::uint32_t shared_offset_mask = (1u << shared_rank_shift) - 1;

/// The first .shared address of a block.
constexpr std::uint32_t shared_base(unsigned rank) { return shared_begin + (rank << shared_rank_shift); }

}  // namespace jit::emulator
