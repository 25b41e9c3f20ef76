#include "runtime/emulator/shared_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "runtime/emulator/memory_access.h"
#include "runtime/emulator/shared_shadow.h"
#include "runtime/emulator/warp.h"

namespace jit::emulator {
namespace {

constexpr int poison = 0xff;

Record record_of(const Access& access, ByteMask bytes) {
  Record record;
  record.agent = access.agent;
  record.time = access.time;
  record.pc = access.pc & 0xffffffu;
  record.lane = access.lane;
  record.bytes = bytes;
  record.warp = static_cast<std::uint16_t>(access.warp->id) & 0x1fu;
  record.rank = access.warp->block.rank & 0xfu;
  record.async = access.proxy == Proxy::async;
  record.strong = access.strong;
  return record;
}

// Calls f(index of the cell, which of its bytes) for all cells that the bytes lie in.
template <class F>
void for_each_cell(std::uint32_t offset, std::uint32_t bytes, F f) {
  std::uint32_t index = offset / cell_bytes, start = offset % cell_bytes;
  while (bytes > 0) {
    const std::uint32_t here = std::min(cell_bytes - start, bytes);
    f(index, static_cast<ByteMask>(((1u << here) - 1) << start));
    bytes -= here;
    ++index;
    start = 0;
  }
}

// The common cases of whole cells, decided without a look at the lists; false: not one of them.
bool read_whole(Cell& cell, const Access& access, const Record& record) {
  if (cell.written != whole_cell || cell.in_flight != 0 || cell.mbarrier != 0 || cell.more_writes != 0 ||
      cell.write.bytes != whole_cell || access.strong || after_write(cell.write, access) != Verdict::fine) {
    return false;
  }
  if (cell.read.bytes != 0) {
    if (cell.read.bytes != whole_cell || !precedes(cell.read, access)) return false;
    if (cell.more_reads != 0 && cell.read.agent != access.agent) return false;
  }
  cell.read = record;
  return true;
}

bool write_whole(Cell& cell, const Access& access, const Record& record) {
  if (cell.in_flight != 0 || cell.mbarrier != 0 || cell.more_writes != 0 || cell.more_reads != 0 ||
      access.strong) {
    return false;
  }
  if (cell.write.bytes != 0 && after_write(cell.write, access) != Verdict::fine) return false;
  if (cell.read.bytes != 0 && after_read(cell.read, access) != Verdict::fine) return false;
  cell.written = whole_cell;
  cell.write = record;
  cell.read.bytes = 0;
  return true;
}

}  // namespace

struct SharedMemory::Stores {
  std::span<const std::uint32_t, 32> offsets;
  std::uint32_t done;  // lanes that have written
  const std::byte* value;

  // A lane that has written the same bytes; −1: none.
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
  const Doing doing{access, "reads", offset, bytes};
  check_bounds(doing);
  if (shadow_) {
    Record record = record_of(access, whole_cell);
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      if (mask == whole_cell && read_whole((*shadow_)[index], access, record)) return;
      Record part = record;
      part.bytes = mask;
      read_cell(doing, index, part);
    });
  }
  return bytes_.data() + offset;
}

std::byte* SharedMemory::write(const Access& access, std::uint32_t offset, std::uint32_t bytes) {
  const Doing doing{access, "writes", offset, bytes};
  check_bounds(doing);
  if (shadow_) {
    Record record = record_of(access, whole_cell);
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      if (mask == whole_cell && write_whole((*shadow_)[index], access, record)) return;
      Record part = record;
      part.bytes = mask;
      write_cell(doing, index, part, nullptr);
    });
  }
  return bytes_.data() + offset;
}

std::byte* SharedMemory::update(const Access& plain, std::uint32_t offset, std::uint32_t bytes) {
  Access access = plain;
  access.strong = true;
  const Doing doing{access, "updates", offset, bytes};
  check_bounds(doing);
  if (shadow_) {
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      require_written(doing, index, mask);
      write_cell(doing, index, record_of(access, mask), nullptr);
    });
  }
  return bytes_.data() + offset;
}

void SharedMemory::load(const Access& by, std::span<const std::uint32_t, 32> offsets, std::uint32_t mask,
                        std::uint32_t bytes, std::byte* to) {
  Access access = by;
  Record record = record_of(access, whole_cell);
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t offset = offsets[static_cast<std::size_t>(lane)];
    if (by.lane != whole_warp) record.lane = access.lane = static_cast<std::uint8_t>(lane);
    const Doing doing{access, "reads", offset, bytes};
    check_bounds(doing);
    if (shadow_) {
      for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask part) {
        record.bytes = part;
        if (part == whole_cell && read_whole((*shadow_)[index], access, record)) return;
        read_cell(doing, index, record);
      });
    }
    std::memcpy(to + static_cast<std::uint32_t>(lane) * bytes, bytes_.data() + offset, bytes);
  });
}

void SharedMemory::store(const Access& by, std::span<const std::uint32_t, 32> offsets, std::uint32_t mask,
                         std::uint32_t bytes, const std::byte* from) {
  Access access = by;
  Record record = record_of(access, whole_cell);
  Stores stores{offsets, 0, nullptr};
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t offset = offsets[static_cast<std::size_t>(lane)];
    const std::byte* const value = from + static_cast<std::uint32_t>(lane) * bytes;
    if (by.lane != whole_warp) record.lane = access.lane = static_cast<std::uint8_t>(lane);
    const Doing doing{access, "writes", offset, bytes};
    check_bounds(doing);
    if (shadow_) {
      stores.value = value;
      for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask part) {
        record.bytes = part;
        if (part == whole_cell && write_whole((*shadow_)[index], access, record)) return;
        write_cell(doing, index, record, &stores);
      });
      stores.done |= 1u << lane;
    }
    std::memcpy(bytes_.data() + offset, value, bytes);
  });
}

void SharedMemory::begin_write(const Access& issue, std::uint32_t offset, std::uint32_t bytes) {
  const Doing doing{issue, "begins a write of", offset, bytes};
  check_bounds(doing);
  if (shadow_) {
    const Record record = record_of(issue, whole_cell);
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      Cell& cell = (*shadow_)[index];
      if (mask != whole_cell || !write_whole(cell, issue, record)) {
        Record part = record;
        part.bytes = mask;
        write_cell(doing, index, part, nullptr);
      }
      cell.in_flight = static_cast<ByteMask>(cell.in_flight | mask);
    });
  }
  std::memset(bytes_.data() + offset, poison, bytes);
}

std::byte* SharedMemory::end_write(const Access& completion, std::uint32_t offset, std::uint32_t bytes) {
  check_bounds({completion, "writes", offset, bytes});
  if (shadow_) {
    const Record record = record_of(completion, whole_cell);
    for_each_cell(offset, bytes, [&](std::uint32_t index, ByteMask mask) {
      Cell& cell = (*shadow_)[index];
      cell.in_flight = static_cast<ByteMask>(cell.in_flight & ~mask);
      if (mask == whole_cell && cell.more_writes == 0 && cell.more_reads == 0) {
        cell.written = whole_cell;
        cell.write = record;
        cell.read.bytes = 0;
        return;
      }
      Record part = record;
      part.bytes = mask;
      shadow_->note_write(cell, completion, part);
    });
  }
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

void SharedMemory::read_cell(const Doing& doing, std::uint32_t index, Record record) {
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
      record.lane = several_lanes;
    } else if (is_news(launch_, FindingKind::data_race, doing.access.pc)) {
      report(doing, FindingKind::data_race,
             fmt::format("; lane {} writes another value there with the same instruction, and which one "
                         "stays is undefined",
                         other));
    }
  }
  shadow_->note_write(cell, access, record);
}

}  // namespace jit::emulator
