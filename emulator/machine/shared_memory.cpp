#include "machine/shared_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "machine/memory_access.h"
#include "machine/shared_shadow.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr int poison = 0xff;

Record record_of(const Access& access) {
  Record record;
  record.agent = access.agent;
  record.time = access.time;
  record.lanes = access.lanes;
  record.pc = access.pc;
  record.warp = static_cast<std::uint16_t>(access.warp->id) & 0x1fu;
  record.rank = access.warp->block.rank & 0xfu;
  record.together = access.together;
  record.async = access.proxy == Proxy::async;
  record.strong = access.strong;
  return record;
}

// Calls f(cell index, byte mask in the cell) for all cells that the bytes overlap.
template <class F>
[[gnu::always_inline]] inline void for_each_cell(std::uint32_t offset, std::uint32_t bytes, F f) {
  std::uint32_t index = offset / cell_bytes, start = offset % cell_bytes;
  if (start + bytes <= cell_bytes) {
    f(index, static_cast<ByteMask>(((1u << bytes) - 1) << start));
    return;
  }
  while (bytes > 0) {
    const std::uint32_t here = std::min(cell_bytes - start, bytes);
    f(index, static_cast<ByteMask>(((1u << here) - 1) << start));
    bytes -= here;
    ++index;
    start = 0;
  }
}

}  // namespace

struct SharedMemory::Stores {
  Offsets offsets;
  std::uint32_t done;  // lanes that have stored
  const std::byte* value;

  // A lane that has stored to the same bytes; −1: none.
  int earlier(std::uint32_t offset) const {
    int found = -1;
    for_each_lane(done, [&](int lane) {
      if (offsets[static_cast<std::size_t>(lane)] == offset) found = lane;
    });
    return found;
  }
};

SharedMemory::SharedMemory(const Launch& launch, std::size_t bytes)
    : launch_(launch), bytes_(bytes, std::byte{poison}) {
  if (launch.options.check_races) shadow_ = std::make_unique<Shadow>(bytes);
}

SharedMemory::~SharedMemory() = default;
SharedMemory::SharedMemory(SharedMemory&&) noexcept = default;

const std::byte* SharedMemory::read(const Access& access, std::uint32_t offset, std::uint32_t bytes) {
  check_bounds(access, "reads", offset, bytes);
  if (shadow_) note_read(access, record_of(access), offset, bytes);
  return bytes_.data() + offset;
}

std::byte* SharedMemory::write(const Access& access, std::uint32_t offset, std::uint32_t bytes) {
  check_bounds(access, "writes", offset, bytes);
  if (shadow_) note_write(access, "writes", record_of(access), offset, bytes, nullptr);
  return bytes_.data() + offset;
}

std::byte* SharedMemory::update(const Access& plain, std::uint32_t offset, std::uint32_t bytes) {
  Access access = plain;
  access.strong = true;
  check_bounds(access, "updates", offset, bytes);
  if (shadow_) {
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      require_written({access, "updates", offset, bytes}, index, mask);
    });
    note_write(access, "updates", record_of(access), offset, bytes, nullptr);
  }
  return bytes_.data() + offset;
}

void SharedMemory::begin_write(const Access& issue, std::uint32_t offset, std::uint32_t bytes) {
  check_bounds(issue, "begins a write of", offset, bytes);
  if (shadow_) note_begin(issue, record_of(issue), offset, bytes);
  std::memset(bytes_.data() + offset, poison, bytes);
}

std::byte* SharedMemory::end_write(const Access& completion, std::uint32_t offset, std::uint32_t bytes) {
  check_bounds(completion, "writes", offset, bytes);
  if (shadow_) note_end(completion, record_of(completion), offset, bytes);
  return bytes_.data() + offset;
}

void SharedMemory::set_mbarrier(std::uint32_t offset, bool is_mbarrier) {
  constexpr std::uint32_t mbarrier_bytes = 8;
  if (!shadow_ || offset > bytes_.size() || bytes_.size() - offset < mbarrier_bytes) return;
  for_each_cell(offset, mbarrier_bytes, [&](std::uint32_t index, ByteMask mask) {
    Cell& cell = (*shadow_)[index];
    cell.mbarrier = static_cast<ByteMask>(is_mbarrier ? cell.mbarrier | mask : cell.mbarrier & ~mask);
    cell.written = static_cast<ByteMask>(is_mbarrier ? cell.written | mask : cell.written & ~mask);
  });
}

template <class F>
void SharedMemory::each_lane(const Access& by, const char* verb, Offsets offsets, std::uint32_t mask,
                             std::uint32_t bytes, F f) {
  Access access = by;
  Record record = record_of(access);
  const bool alike = by.together || by.warp->knowledge.is_shared();
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t offset = offsets[static_cast<std::size_t>(lane)];
    if (!by.together) record.lanes = access.lanes = 1u << lane;
    if (!alike) {
      const LaneKnowledge::View& view = by.warp->knowledge.of(lane);
      access.knowledge = &view.known;
      access.fenced = view.fenced;
    }
    check_bounds(access, verb, offset, bytes);
    f(static_cast<std::uint32_t>(lane), offset, access, record);
  });
}

template <std::uint32_t bytes>
void SharedMemory::load_as(const Access& by, Offsets offsets, std::uint32_t mask, std::byte* to) {
  each_lane(by, "reads", offsets, mask, bytes,
            [&](std::uint32_t lane, std::uint32_t offset, const Access& access, const Record& record) {
              if (shadow_) note_read(access, record, offset, bytes);
              std::memcpy(to + lane * bytes, bytes_.data() + offset, bytes);
            });
}

template <std::uint32_t bytes>
void SharedMemory::store_as(const Access& by, Offsets offsets, std::uint32_t mask, const std::byte* from) {
  Stores stores{offsets, 0, nullptr};
  each_lane(by, "writes", offsets, mask, bytes,
            [&](std::uint32_t lane, std::uint32_t offset, const Access& access, const Record& record) {
              const std::byte* const value = from + lane * bytes;
              if (shadow_) {
                stores.value = value;
                note_write(access, "writes", record, offset, bytes, &stores);
                stores.done |= 1u << lane;
              }
              std::memcpy(bytes_.data() + offset, value, bytes);
            });
}

void SharedMemory::load(const Access& access, Offsets offsets, std::uint32_t mask, std::uint32_t bytes,
                        std::byte* to) {
  switch (bytes) {
    case 1:
      return load_as<1>(access, offsets, mask, to);
    case 2:
      return load_as<2>(access, offsets, mask, to);
    case 4:
      return load_as<4>(access, offsets, mask, to);
    case 8:
      return load_as<8>(access, offsets, mask, to);
    case 16:
      return load_as<16>(access, offsets, mask, to);
    default:
      return load_as<32>(access, offsets, mask, to);
  }
}

void SharedMemory::store(const Access& access, Offsets offsets, std::uint32_t mask, std::uint32_t bytes,
                         const std::byte* from) {
  switch (bytes) {
    case 1:
      return store_as<1>(access, offsets, mask, from);
    case 2:
      return store_as<2>(access, offsets, mask, from);
    case 4:
      return store_as<4>(access, offsets, mask, from);
    case 8:
      return store_as<8>(access, offsets, mask, from);
    case 16:
      return store_as<16>(access, offsets, mask, from);
    default:
      return store_as<32>(access, offsets, mask, from);
  }
}

void SharedMemory::begin_store(const Access& issue, Offsets offsets, std::uint32_t mask,
                               std::uint32_t bytes) {
  each_lane(issue, "begins a write of", offsets, mask, bytes,
            [&](std::uint32_t, std::uint32_t offset, const Access& access, const Record& record) {
              if (shadow_) note_begin(access, record, offset, bytes);
              std::memset(bytes_.data() + offset, poison, bytes);
            });
}

void SharedMemory::end_store(const Access& completion, Offsets offsets, std::uint32_t mask,
                             std::uint32_t bytes, const std::byte* from) {
  each_lane(completion, "writes", offsets, mask, bytes,
            [&](std::uint32_t lane, std::uint32_t offset, const Access& access, const Record& record) {
              if (shadow_) note_end(access, record, offset, bytes);
              std::memcpy(bytes_.data() + offset, from + lane * bytes, bytes);
            });
}

inline void SharedMemory::note_read(const Access& access, Record record, std::uint32_t offset,
                                    std::uint32_t bytes) {
  for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
    record.bytes = mask;
    if (shadow_->try_read((*shadow_)[index], access, record)) return;
    read_cell({access, "reads", offset, bytes}, index, record);
  });
}

inline void SharedMemory::note_write(const Access& access, const char* verb, Record record,
                                     std::uint32_t offset, std::uint32_t bytes, const Stores* stores) {
  for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
    record.bytes = mask;
    if (shadow_->try_write((*shadow_)[index], access, record)) return;
    write_cell({access, verb, offset, bytes}, index, record, stores);
  });
}

inline void SharedMemory::note_begin(const Access& issue, Record record, std::uint32_t offset,
                                     std::uint32_t bytes) {
  for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
    Cell& cell = (*shadow_)[index];
    record.bytes = mask;
    if (!shadow_->try_write(cell, issue, record)) {
      write_cell({issue, "begins a write of", offset, bytes}, index, record, nullptr);
    }
    cell.in_flight = static_cast<ByteMask>(cell.in_flight | mask);
  });
}

inline void SharedMemory::note_end(const Access& completion, Record record, std::uint32_t offset,
                                   std::uint32_t bytes) {
  for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
    Cell& cell = (*shadow_)[index];
    record.bytes = mask;
    cell.in_flight = static_cast<ByteMask>(cell.in_flight & ~mask);
    if (cell.write.bytes == mask && cell.read.bytes == 0 && cell.has_strong == 0) {
      cell.written = static_cast<ByteMask>(cell.written | mask);
      cell.write = record;
    } else {
      shadow_->note_write(cell, completion, record);
    }
  });
}

void SharedMemory::read_cell(const Doing& doing, std::uint32_t index, const Record& record) {
  Cell& cell = (*shadow_)[index];
  if (is_untouchable(doing, index, record.bytes)) return;
  if (const auto conflict = shadow_->check_read(cell, doing.access, record.bytes)) {
    report_conflict(doing, index, record.bytes, *conflict);
  } else {
    require_written(doing, index, record.bytes);
  }
  shadow_->note_read(cell, doing.access, record);
}

void SharedMemory::write_cell(const Doing& doing, std::uint32_t index, Record record, const Stores* stores) {
  Cell& cell = (*shadow_)[index];
  const Access& access = doing.access;
  if (is_untouchable(doing, index, record.bytes)) return;
  if (const auto conflict = shadow_->check_write(cell, access, record.bytes)) {
    const Record& with = conflict->with;
    const int other = stores && !conflict->with_read && with.agent == access.agent &&
                              with.time == access.time && with.pc == record.pc
                          ? stores->earlier(doing.offset)
                          : -1;
    if (other < 0) {
      report_conflict(doing, index, record.bytes, *conflict);
    } else if (std::memcmp(bytes_.data() + doing.offset, stores->value, doing.bytes) == 0) {
      record.lanes |= with.lanes;
    } else if (is_news(launch_, FindingKind::data_race, access.pc)) {
      report(doing, FindingKind::data_race,
             fmt::format("; lane {} writes another value there with the same instruction, and which one "
                         "stays is undefined",
                         other));
    }
  }
  shadow_->note_write(cell, access, record);
}

}  // namespace jit::emulator
