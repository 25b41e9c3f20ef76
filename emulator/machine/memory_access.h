// Checked access to memory outside of .shared, and resolution of generic addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "machine/warp.h"

namespace jit::emulator {

/// A device pointer for an immediate access by `lane`. `address` must be a multiple of `alignment`, and the
/// bytes allocated; misaligned and out-of-bounds accesses stop the launch. A read of unwritten bytes is
/// reported and continues; a write marks them written. `pc` is the instruction to report when it is not the
/// current one, as for copies that complete later.
const std::byte* read_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes,
                             std::uint32_t alignment, std::optional<std::uint32_t> pc = {});
std::byte* write_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes,
                        std::uint32_t alignment, std::optional<std::uint32_t> pc = {});
/// Only the checks of alignment and bounds.
void check_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, std::uint32_t alignment);

/// The target of a generic address.
struct Target {
  enum class Where { global, shared, local, param } where = Where::global;
  std::uint64_t address = 0;  ///< in `global`; else an offset
  Block* block = nullptr;     ///< the block, for `shared`
};
/// Stops the launch for an address in no window that a lane of this warp may use.
Target resolve_generic(Warp& warp, int lane, std::uint64_t address);

/// The block and byte offset of a 32-bit .shared or .shared::cluster address. Stops the launch for an address
/// below shared_begin or of no block of the cluster.
struct SharedPlace {
  Block* block = nullptr;
  std::uint32_t offset = 0;  ///< offset in SharedMemory
};
SharedPlace resolve_shared(Warp& warp, int lane, std::uint32_t address);

/// `bytes` of a lane's local memory, or of the parameter block, at `offset`. Out of bounds stops the launch.
std::byte* local_at(Warp& warp, int lane, std::uint64_t offset, std::uint32_t bytes);
const std::byte* parameter_at(Warp& warp, int lane, std::uint64_t offset, std::uint32_t bytes);

/// Copies `bytes` from a generic address, with the checks of its space.
void load_generic(Warp& warp, int lane, std::uint64_t address, void* to, std::uint32_t bytes);

/// Stops the launch unless `address` is a multiple of `alignment`, a power of two.
void require_aligned(Warp& warp, int lane, std::uint64_t address, std::uint32_t alignment);
inline bool is_aligned(std::uint64_t address, std::uint32_t alignment) {
  return (address & (alignment - 1)) == 0;
}

/// Whether a finding of this kind at `pc` would be the first; later ones need no text.
bool is_news(const Launch& launch, FindingKind kind, std::uint32_t pc);

}  // namespace jit::emulator
