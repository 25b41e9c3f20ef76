// Reports of faulty accesses to SharedMemory.
#include <bit>

#include <fmt/format.h>

#include "machine/memory_access.h"
#include "machine/shared_memory.h"
#include "machine/shared_shadow.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

std::uint32_t lowest(std::uint32_t index, ByteMask bytes) {
  return index * cell_bytes + static_cast<std::uint32_t>(std::countr_zero(bytes));
}

int lane_of(const Access& access) {
  return std::has_single_bit(access.lanes) ? std::countr_zero(access.lanes) : -1;
}

// " lane 5"
std::string lanes_text(std::uint32_t lanes) {
  if (lanes == all_lanes) return "";
  return std::has_single_bit(lanes) ? fmt::format(" lane {}", std::countr_zero(lanes))
                                    : fmt::format(" lanes {:#010x}", lanes);
}

std::string range_text(std::uint32_t offset, std::uint32_t bytes) {
  return bytes == 1 ? fmt::format("byte {}", offset)
                    : fmt::format("bytes {} to {}", offset, std::uint64_t{offset} + bytes - 1);
}

}  // namespace

void SharedMemory::stop_out_of_bounds(const Doing& doing) {
  launch_.stop(FindingKind::out_of_bounds, *doing.access.warp, lane_of(doing.access),
               fmt::format("{} {} of shared memory, and the block has {}", doing.verb,
                           range_text(doing.offset, doing.bytes), bytes_.size()));
}

void SharedMemory::report(const Doing& doing, FindingKind kind, const std::string& rest) {
  launch_.report_at(
      doing.access.pc, kind, *doing.access.warp, lane_of(doing.access),
      fmt::format("{} {} of shared memory{}", doing.verb, range_text(doing.offset, doing.bytes), rest));
}

// "warp 3 lane 5 wrote … with st.shared.b32 at softmax.cuh:41"
std::string SharedMemory::describe(const Record& record, const char* verb) const {
  const std::string block = launch_.shape.cluster == std::array{1u, 1u, 1u}
                                ? ""
                                : fmt::format("block {} of the cluster ", record.rank);
  const Kernel& kernel = launch_.kernel;
  const std::string name = record.pc < kernel.info.size() ? kernel.info[record.pc].name : "an instruction";
  return fmt::format("{}warp {}{} {} with {} at {}", block, +record.warp, lanes_text(record.lanes), verb,
                     name, place_of(kernel, record.pc));
}

bool SharedMemory::is_untouchable(const Doing& doing, std::uint32_t index, ByteMask mask) {
  const Cell& cell = (*shadow_)[index];
  if (const auto bytes = static_cast<ByteMask>(cell.in_flight & mask); bytes != 0) {
    if (is_news(launch_, FindingKind::access_in_flight, doing.access.pc)) {
      const auto copy = shadow_->last_write(cell, bytes);
      report(
          doing, FindingKind::access_in_flight,
          fmt::format(" while byte {} is still to be written by a copy that {}; nothing waits for it before",
                      lowest(index, bytes), copy ? describe(*copy, "issued") : "is under way"));
    }
    return true;
  }
  if (const auto bytes = static_cast<ByteMask>(cell.mbarrier & mask); bytes != 0) {
    if (is_news(launch_, FindingKind::barrier_misuse, doing.access.pc)) {
      report(doing, FindingKind::barrier_misuse,
             fmt::format(", and byte {} belongs to an mbarrier, which only mbarrier instructions may touch",
                         lowest(index, bytes)));
    }
    return true;
  }
  return false;
}

void SharedMemory::require_written(const Doing& doing, std::uint32_t index, ByteMask mask) {
  Cell& cell = (*shadow_)[index];
  const auto missing = static_cast<ByteMask>(mask & ~(cell.written | cell.in_flight));
  if (missing == 0) return;
  cell.written = static_cast<ByteMask>(cell.written | mask);
  if (!is_news(launch_, FindingKind::uninitialized_shared_read, doing.access.pc)) return;
  report(doing, FindingKind::uninitialized_shared_read,
         fmt::format(", and byte {} was never written", lowest(index, missing)));
}

void SharedMemory::report_conflict(const Doing& doing, std::uint32_t index, ByteMask mask,
                                   const Conflict& conflict) {
  const bool is_race = conflict.verdict == Verdict::race;
  const FindingKind kind = is_race ? FindingKind::data_race : FindingKind::missing_proxy_fence;
  if (!is_news(launch_, kind, doing.access.pc)) return;
  const std::uint32_t byte = lowest(index, static_cast<ByteMask>(conflict.with.bytes & mask));
  report(doing, kind,
         fmt::format("; {} byte {}, {}", describe(conflict.with, conflict.with_read ? "read" : "wrote"), byte,
                     is_race ? "and nothing orders the two"
                             : "which the async proxy sees only behind a fence.proxy.async"));
}

}  // namespace jit::emulator
