#include "machine/lane_memory.h"

#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "machine/address_space.h"
#include "machine/global_races.h"
#include "machine/memory_access.h"
#include "machine/residency.h"

namespace jit::emulator {
namespace {

// Device accesses that may be concurrent with other threads'.
template <class Word>
void load_strong(std::byte* to, const std::byte* from) {
  const Word value = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_ACQUIRE);
  std::memcpy(to, &value, sizeof(Word));
}

template <class Word>
void store_strong(std::byte* to, const std::byte* from) {
  Word value;
  std::memcpy(&value, from, sizeof(Word));
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
}

void copy_strong(bool is_load, std::byte* to, const std::byte* from, std::uint32_t bytes,
                 std::uint32_t element) {
  for (std::uint32_t i = 0; i < bytes; i += element) {
    switch (element) {
      case 1:
        (is_load ? load_strong<std::uint8_t> : store_strong<std::uint8_t>)(to + i, from + i);
        break;
      case 2:
        (is_load ? load_strong<std::uint16_t> : store_strong<std::uint16_t>)(to + i, from + i);
        break;
      case 4:
        (is_load ? load_strong<std::uint32_t> : store_strong<std::uint32_t>)(to + i, from + i);
        break;
      default:
        (is_load ? load_strong<std::uint64_t> : store_strong<std::uint64_t>)(to + i, from + i);
    }
  }
}

// memcpy with constant sizes for the common cases.
void copy(std::byte* to, const std::byte* from, std::uint32_t bytes) {
  switch (bytes) {
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 16:
      std::memcpy(to, from, 16);
      return;
    default:
      std::memcpy(to, from, bytes);
  }
}

std::uint64_t total(std::uint32_t mask, const LaneAccess& access) {
  return static_cast<std::uint64_t>(std::popcount(mask)) * access.bytes;
}

void count_wavefronts(Warp& warp, const SharedOffsets& offsets, std::uint32_t lanes,
                      const LaneAccess& access) {
  const Wavefronts wavefronts = bank_wavefronts(offsets, lanes, static_cast<int>(access.bytes));
  warp.count().bank_wavefronts += static_cast<std::uint64_t>(wavefronts.actual);
  warp.count().ideal_wavefronts += static_cast<std::uint64_t>(wavefronts.ideal);
}

std::size_t index_of(int lane) { return static_cast<std::size_t>(lane); }

// Whether all 32 lanes access one piece of memory, in order.
bool is_one_piece(std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses) {
  if (mask != all_lanes || access.ordering.strong || !is_aligned(addresses[0], access.bytes)) return false;
  std::uint64_t difference = 0;
  for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
    difference |= addresses[lane] ^ (addresses[0] + lane * access.bytes);
  }
  return difference == 0;
}

// Checked access, lane by lane; `move` copies the bytes.
template <class F>
void access_strong(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                   GlobalRaces::Kind kind, F move) {
  GlobalRaces* const races = warp.launch().races;
  for_each_lane(mask, [&](int lane) {
    if (races == nullptr) return move(lane);
    races->strong(warp, lane, addresses[index_of(lane)], access.bytes, kind, access.ordering,
                  [&] { move(lane); });
  });
}

// FNV-1a over what the lanes have read.
void note_poll(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
               const std::byte* values) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for_each_lane(mask, [&](int lane) {
    const std::byte* const value = values + index_of(lane) * access.bytes;
    for (std::uint32_t i = 0; i < access.bytes; ++i) {
      hash = (hash ^ static_cast<std::uint64_t>(value[i])) * 0x100000001b3u;
    }
  });
  warp.note_poll(addresses[index_of(std::countr_zero(mask))], hash);
}

void load_global(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                 std::byte* to) {
  const GlobalMemory& memory = warp.launch().memory;
  warp.count().global_read_bytes += total(mask, access);
  const std::byte* const piece = is_one_piece(mask, access, addresses)
                                     ? memory.written_at(addresses[0], warp_lanes * access.bytes)
                                     : nullptr;
  if (piece) {
    std::memcpy(to, piece, warp_lanes * access.bytes);
  } else {
    std::array<const std::byte*, warp_lanes> from;
    for_each_lane(mask, [&](int lane) {
      const std::uint64_t address = addresses[index_of(lane)];
      const std::byte* place =
          is_aligned(address, access.bytes) ? memory.written_at(address, access.bytes) : nullptr;
      if (!place) place = read_global(warp, lane, address, access.bytes, access.bytes);
      from[index_of(lane)] = place;
      if (!access.ordering.strong) copy(to + index_of(lane) * access.bytes, place, access.bytes);
    });
    if (access.ordering.strong) {
      access_strong(warp, mask, access, addresses, GlobalRaces::Kind::load, [&](int lane) {
        copy_strong(true, to + index_of(lane) * access.bytes, from[index_of(lane)], access.bytes,
                    access.element_bytes);
      });
      return note_poll(warp, mask, access, addresses, to);
    }
  }
  if (GlobalRaces* const races = warp.launch().races) races->read(warp, mask, addresses, access.bytes);
}

void store_global(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                  const std::byte* from) {
  GlobalMemory& memory = warp.launch().memory;
  GlobalRaces* const races = warp.launch().races;
  warp.count().global_write_bytes += total(mask, access);
  if (is_one_piece(mask, access, addresses)) {
    if (std::byte* const to = memory.at(addresses[0], warp_lanes * access.bytes)) {
      if (races) races->write(warp, mask, addresses, access.bytes, from);
      std::memcpy(to, from, warp_lanes * access.bytes);
      memory.mark_written(addresses[0], warp_lanes * access.bytes);
      return;
    }
  }
  std::array<std::byte*, warp_lanes> to;
  for_each_lane(mask, [&](int lane) {
    to[index_of(lane)] = write_global(warp, lane, addresses[index_of(lane)], access.bytes, access.bytes);
  });
  if (access.ordering.strong) {
    access_strong(warp, mask, access, addresses, GlobalRaces::Kind::store, [&](int lane) {
      copy_strong(false, to[index_of(lane)], from + index_of(lane) * access.bytes, access.bytes,
                  access.element_bytes);
    });
    return warp.launch().residency->note_change();
  }
  if (races) races->write(warp, mask, addresses, access.bytes, from);
  for_each_lane(
      mask, [&](int lane) { copy(to[index_of(lane)], from + index_of(lane) * access.bytes, access.bytes); });
}

void load_shared(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                 std::byte* to) {
  for_each_block(warp, mask, addresses, access.bytes,
                 [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
                   if (access.ordering.strong) {
                     for_each_lane(lanes, [&](int lane) {
                       block.shared.sync().read(warp, lane, offsets[index_of(lane)], access.ordering);
                     });
                   }
                   Access by = warp.access_by_each();
                   by.strong = access.ordering.strong;
                   block.shared.load(by, offsets, lanes, access.bytes, to);
                   count_wavefronts(warp, offsets, lanes, access);
                 });
  warp.count().shared_read_bytes += total(mask, access);
}

void store_shared(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                  const std::byte* from) {
  for_each_block(warp, mask, addresses, access.bytes,
                 [&](Block& block, const SharedOffsets& offsets, std::uint32_t lanes) {
                   Access by = warp.access_by_each();
                   by.strong = access.ordering.strong;
                   block.shared.store(by, offsets, lanes, access.bytes, from);
                   if (access.ordering.strong) {
                     for_each_lane(lanes, [&](int lane) {
                       block.shared.sync().write(warp, lane, offsets[index_of(lane)], access.ordering, false);
                     });
                   }
                   count_wavefronts(warp, offsets, lanes, access);
                 });
  warp.count().shared_write_bytes += total(mask, access);
}

void load_local(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                std::byte* to) {
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t offset = addresses[index_of(lane)];
    require_aligned(warp, lane, offset, access.bytes);
    std::memcpy(to + index_of(lane) * access.bytes, local_at(warp, lane, offset, access.bytes), access.bytes);
  });
  warp.count().local_bytes += total(mask, access);
}

void store_local(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                 const std::byte* from) {
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t offset = addresses[index_of(lane)];
    require_aligned(warp, lane, offset, access.bytes);
    std::memcpy(local_at(warp, lane, offset, access.bytes), from + index_of(lane) * access.bytes,
                access.bytes);
  });
  warp.count().local_bytes += total(mask, access);
}

void load_parameters(Warp& warp, std::uint32_t mask, const LaneAccess& access, const LaneAddresses& addresses,
                     std::byte* to) {
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t offset = addresses[index_of(lane)];
    require_aligned(warp, lane, offset, access.bytes);
    std::memcpy(to + index_of(lane) * access.bytes, parameter_at(warp, lane, offset, access.bytes),
                access.bytes);
  });
}

}  // namespace

LaneAddresses lane_addresses(Warp& warp, const Decoder::Address& address) {
  LaneAddresses addresses;
  const auto offset = static_cast<std::uint64_t>(address.offset);
  if (address.narrow) {
    const std::uint32_t* const base = warp.r32(address.base);
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
      addresses[lane] = static_cast<std::uint32_t>(base[lane] + offset);
    }
  } else {
    const std::uint64_t* const base = warp.r64(address.base);
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) addresses[lane] = base[lane] + offset;
  }
  return addresses;
}

SpaceMasks split_generic(Warp& warp, std::uint32_t mask, LaneAddresses& addresses) {
  SpaceMasks masks;
  for_each_lane(mask, [&](int lane) {
    std::uint64_t& address = addresses[index_of(lane)];
    const std::uint32_t bit = 1u << lane;
    if (address < shared_window) {
      masks.global |= bit;
      return;
    }
    const Target target = resolve_generic(warp, lane, address);
    switch (target.where) {
      case Target::Where::shared:
        masks.shared |= bit;
        address -= shared_window;
        return;
      case Target::Where::local:
        masks.local |= bit;
        break;
      case Target::Where::param:
        masks.param |= bit;
        break;
      case Target::Where::global:
        masks.global |= bit;
        break;
    }
    address = target.address;
  });
  return masks;
}

bool detail::all_in_own_block(const Warp& warp, std::uint32_t mask, const LaneAddresses& addresses,
                              std::uint32_t alignment, SharedOffsets& offsets) {
  const std::uint64_t base = shared_base(warp.block.rank);
  std::uint64_t all = 0;
  for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
    const std::uint64_t takes_part = 0 - std::uint64_t{mask >> lane & 1};
    const std::uint64_t offset = addresses[lane] - base;
    offsets[lane] = static_cast<std::uint32_t>(offset);
    all |= offset & takes_part;
  }
  return all >> shared_rank_shift == 0 && is_aligned(all, alignment);
}

std::uint32_t detail::take_block(Warp& warp, std::uint32_t& mask, const LaneAddresses& addresses,
                                 std::uint32_t alignment, Block*& block, SharedOffsets& offsets) {
  std::uint32_t taken = 0;
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t address = addresses[index_of(lane)];
    require_aligned(warp, lane, address, alignment);
    if (address > std::numeric_limits<std::uint32_t>::max()) {
      warp.stop(FindingKind::out_of_bounds, lane,
                fmt::format("{:#x} is no address in shared memory, which has 32 bits", address));
    }
    const SharedPlace place = resolve_shared(warp, lane, static_cast<std::uint32_t>(address));
    if (block == nullptr) block = place.block;
    if (block != place.block) return;
    offsets[index_of(lane)] = place.offset;
    taken |= 1u << lane;
  });
  mask &= ~taken;
  return taken;
}

void load_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses, std::byte* to) {
  switch (access.space) {
    case AddressSpace::global:
      return load_global(warp, warp.exec, access, addresses, to);
    case AddressSpace::shared:
      return load_shared(warp, warp.exec, access, addresses, to);
    case AddressSpace::local:
      return load_local(warp, warp.exec, access, addresses, to);
    case AddressSpace::param:
      return load_parameters(warp, warp.exec, access, addresses, to);
    case AddressSpace::generic:
      break;
  }
  LaneAddresses places = addresses;
  const SpaceMasks masks = split_generic(warp, warp.exec, places);
  if (masks.global != 0) load_global(warp, masks.global, access, places, to);
  if (masks.shared != 0) load_shared(warp, masks.shared, access, places, to);
  if (masks.local != 0) load_local(warp, masks.local, access, places, to);
  if (masks.param != 0) load_parameters(warp, masks.param, access, places, to);
}

void store_lanes(Warp& warp, const LaneAccess& access, const LaneAddresses& addresses,
                 const std::byte* from) {
  switch (access.space) {
    case AddressSpace::global:
      return store_global(warp, warp.exec, access, addresses, from);
    case AddressSpace::shared:
      return store_shared(warp, warp.exec, access, addresses, from);
    case AddressSpace::local:
      return store_local(warp, warp.exec, access, addresses, from);
    case AddressSpace::param:
    case AddressSpace::generic:
      break;
  }
  LaneAddresses places = addresses;
  const SpaceMasks masks = split_generic(warp, warp.exec, places);
  if (masks.param != 0) {
    warp.stop(FindingKind::illegal_instruction, std::countr_zero(masks.param),
              "writes to the kernel's parameters, which can only be read");
  }
  if (masks.global != 0) store_global(warp, masks.global, access, places, from);
  if (masks.shared != 0) store_shared(warp, masks.shared, access, places, from);
  if (masks.local != 0) store_local(warp, masks.local, access, places, from);
}

}  // namespace jit::emulator
