// Loads and stores of a whole warp: each lane has its own address, in any space.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "machine/decoder.h"
#include "machine/shared_sync.h"
#include "machine/warp.h"

namespace jit::emulator {

enum class AddressSpace : std::uint8_t { generic, global, shared, local, param };

/// An address for each lane: 32 bits in `shared`, an offset in `local` and `param`.
using LaneAddresses = std::array<std::uint64_t, warp_lanes>;

/// Addresses [base + offset] of all lanes.
LaneAddresses lane_addresses(Warp& warp, const Decoder::Address& address);

/// Size and semantics of one lane's access.
struct LaneAccess {
  AddressSpace space = AddressSpace::generic;
  std::uint32_t bytes = 4;          ///< together, a power of two up to 32; the address is a multiple of it
  std::uint32_t element_bytes = 4;  ///< strong accesses are single-copy atomic for each element
  Ordering ordering = {};
};

/// Loads for each lane of `warp.exec` to `to` + lane · access.bytes. Checks, counts and reports depend on the
/// space.
void load_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses, std::byte* to);
/// Stores from `from` + lane · access.bytes.
void store_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses, const std::byte* from);

/// Lanes of a warp by the space of their generic addresses.
struct SpaceMasks {
  std::uint32_t global = 0, shared = 0, local = 0, param = 0;
};
/// Converts generic addresses to addresses in their spaces. Stops the launch for an address in none.
SpaceMasks split_generic(Warp& warp, std::uint32_t mask, LaneAddresses& addresses);

/// Byte offsets in one block's shared memory, of some lanes.
using SharedOffsets = std::array<std::uint32_t, warp_lanes>;

/// Calls f(block, offsets, lanes) for each block of the cluster that lanes of `mask` address. Stops the
/// launch for an address that is not a multiple of `alignment` or not in shared memory.
template <class F>
void for_each_block(Warp& warp, std::uint32_t mask, const LaneAddresses& addresses, std::uint32_t alignment,
                    F f);

// Details.
namespace detail {
/// Sets all offsets. Returns whether all lanes of `mask` validly address their own block.
bool all_in_own_block(const Warp& warp, std::uint32_t mask, const LaneAddresses& addresses,
                      std::uint32_t alignment, SharedOffsets& offsets);
/// Takes the lanes that address one block out of `mask`.
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
