// Loads and stores of a whole warp: each lane at an address of its own, in any space.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "machine/decoder.h"
#include "machine/shared_sync.h"
#include "machine/warp.h"

namespace jit::emulator {

enum class AddressSpace : std::uint8_t { generic, global, shared, local, param };

/// An address for each lane: in `shared` of 32 bits, in `local` and `param` an offset.
using LaneAddresses = std::array<std::uint64_t, warp_lanes>;

/// Values of [base + offset] for all lanes.
LaneAddresses lane_addresses(Warp& warp, const Decoder::Address& address);

/// The access of one lane: what it moves, and how.
struct LaneAccess {
  AddressSpace space = AddressSpace::generic;
  std::uint32_t bytes = 4;          ///< together, a power of two up to 32; the address is a multiple of it
  std::uint32_t element_bytes = 4;  ///< strong accesses are single-copy atomic for each element
  Ordering ordering = {};
};

/// Reads for each lane of `warp.exec` to `to` + lane · access.bytes. Checks and counts, and reports as the
/// space does.
void load_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses, std::byte* to);
/// Writes what lies there.
void store_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses, const std::byte* from);

/// The lanes of a warp by the space that their generic addresses lie in.
struct SpaceMasks {
  std::uint32_t global = 0, shared = 0, local = 0, param = 0;
};
/// Turns the addresses into those of their spaces. Stops the launch for one that lies in none.
SpaceMasks split_generic(Warp& warp, std::uint32_t mask, LaneAddresses& addresses);

/// Byte offsets in one block's shared memory, of some lanes.
using SharedOffsets = std::array<std::uint32_t, warp_lanes>;

/// Calls f(block, offsets, lanes) for each block of the cluster that the shared addresses of `mask` name.
/// Stops the launch for an address that is not a multiple of `alignment`, or no shared one.
template <class F>
void for_each_block(Warp& warp, std::uint32_t mask, const LaneAddresses& addresses, std::uint32_t alignment,
                    F f);

// Details.
namespace detail {
/// Sets all offsets, and returns whether all lanes of `mask` address the block itself, without fault.
bool all_in_own_block(const Warp& warp, std::uint32_t mask, const LaneAddresses& addresses,
                      std::uint32_t alignment, SharedOffsets& offsets);
/// Takes the lanes of one block out of `mask`.
std::uint32_t take_block(Warp& warp, std::uint32_t& mask, const LaneAddresses& addresses,
                         std::uint32_t alignment, Block*& block, SharedOffsets& offsets);
}  // namespace detail

template <class F>
void for_each_block(Warp& warp, std::uint32_t mask, const LaneAddresses& addresses, std::uint32_t alignment,
                    F f) {
  SharedOffsets offsets;
  if (detail::all_in_own_block(warp, mask, addresses, alignment, offsets)) {
    f(warp.block, offsets, mask);
    return;
  }
  while (mask != 0) {
    Block* block = nullptr;
    const std::uint32_t lanes = detail::take_block(warp, mask, addresses, alignment, block, offsets);
    f(*block, offsets, lanes);
  }
}

}  // namespace jit::emulator
