#include "machine/memory_access.h"

#include <bit>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "machine/address_space.h"
#include "machine/global_races.h"

namespace jit::emulator {
namespace {

[[noreturn]] void stop_misaligned(std::uint32_t pc, Warp& warp, int lane, std::uint64_t address,
                                  std::uint32_t alignment) {
  warp.launch().stop_at(pc, FindingKind::misaligned, warp, lane,
                        fmt::format("address {:#x} is not a multiple of {}", address, alignment));
}

[[noreturn]] void stop_unallocated(std::uint32_t pc, Warp& warp, int lane, const char* verb,
                                   std::uint64_t address, std::uint32_t bytes) {
  warp.launch().stop_at(
      pc, FindingKind::out_of_bounds, warp, lane,
      fmt::format("{} {} bytes of global memory: {}", verb, bytes, warp.launch().memory.describe(address)));
}

}  // namespace

bool is_news(const Launch& launch, FindingKind kind, std::uint32_t pc) {
  const std::lock_guard lock(launch.findings.mutex);
  return !launch.findings.seen.contains({kind, pc});
}

void require_aligned(Warp& warp, int lane, std::uint64_t address, std::uint32_t alignment) {
  if (!is_aligned(address, alignment)) stop_misaligned(warp.pc, warp, lane, address, alignment);
}

void check_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, std::uint32_t alignment) {
  require_aligned(warp, lane, address, alignment);
  if (!warp.launch().memory.at(address, bytes)) {
    stop_unallocated(warp.pc, warp, lane, "accesses", address, bytes);
  }
}

const std::byte* read_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes,
                             std::uint32_t alignment, std::optional<std::uint32_t> pc) {
  const GlobalMemory& memory = warp.launch().memory;
  if (!is_aligned(address, alignment)) {
    stop_misaligned(pc.value_or(warp.pc), warp, lane, address, alignment);
  }
  if (const std::byte* const place = memory.written_at(address, bytes)) return place;
  const std::byte* const place = memory.at(address, bytes);
  if (!place) stop_unallocated(pc.value_or(warp.pc), warp, lane, "reads", address, bytes);
  if (is_news(warp.launch(), FindingKind::uninitialized_read, pc.value_or(warp.pc))) {
    std::uint64_t missing = address;
    while (memory.is_written(missing, 1)) ++missing;
    warp.launch().report_at(pc.value_or(warp.pc), FindingKind::uninitialized_read, warp, lane,
                            fmt::format("reads {} bytes of global memory that were never written: {}", bytes,
                                        memory.describe(missing)));
  }
  return place;
}

std::byte* write_global(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes,
                        std::uint32_t alignment, std::optional<std::uint32_t> pc) {
  GlobalMemory& memory = warp.launch().memory;
  if (!is_aligned(address, alignment)) {
    stop_misaligned(pc.value_or(warp.pc), warp, lane, address, alignment);
  }
  std::byte* const place = memory.at(address, bytes);
  if (!place) stop_unallocated(pc.value_or(warp.pc), warp, lane, "writes", address, bytes);
  memory.mark_written(address, bytes);
  return place;
}

Target resolve_generic(Warp& warp, int lane, std::uint64_t address) {
  if (address < shared_window) return {Target::Where::global, address, nullptr};
  if (in_window(address, shared_window)) {
    const SharedPlace place = resolve_shared(warp, lane, static_cast<std::uint32_t>(address - shared_window));
    return {Target::Where::shared, place.offset, place.block};
  }
  if (in_window(address, local_window)) return {Target::Where::local, address - local_window, nullptr};
  if (in_window(address, param_window)) return {Target::Where::param, address - param_window, nullptr};
  warp.stop(FindingKind::out_of_bounds, lane,
            fmt::format("the generic address {:#x} lies in no memory", address));
}

SharedPlace resolve_shared(Warp& warp, int lane, std::uint32_t address) {
  const std::uint32_t rank = address >> shared_rank_shift;
  const std::uint32_t offset = address & shared_offset_mask;
  const auto& blocks = warp.block.cluster.blocks;
  if (offset < shared_begin || rank >= blocks.size()) {
    warp.stop(FindingKind::out_of_bounds, lane,
              offset < shared_begin
                  ? fmt::format("{:#x} is no address in shared memory, which begins at {:#x}", address,
                                shared_begin)
                  : fmt::format("address {:#x} names block {} of the cluster, which has {}", address, rank,
                                blocks.size()));
  }
  return {blocks[rank].get(), offset - shared_begin};
}

std::byte* local_at(Warp& warp, int lane, std::uint64_t offset, std::uint32_t bytes) {
  const std::size_t size = warp.launch().kernel.local_bytes;
  if (offset > size || bytes > size - offset) {
    warp.stop(
        FindingKind::out_of_bounds, lane,
        fmt::format("accesses {} bytes from byte {} of local memory, which has {}", bytes, offset, size));
  }
  constexpr std::byte poison{0xff};
  if (warp.local.empty()) warp.local.assign(size * warp_lanes, poison);
  return warp.local.data() + static_cast<std::size_t>(lane) * size + offset;
}

const std::byte* parameter_at(Warp& warp, int lane, std::uint64_t offset, std::uint32_t bytes) {
  const auto parameters = warp.launch().parameters;
  if (offset > parameters.size() || bytes > parameters.size() - offset) {
    warp.stop(FindingKind::out_of_bounds, lane,
              fmt::format("reads {} bytes from byte {} of the kernel's parameters, which have {}", bytes,
                          offset, parameters.size()));
  }
  return parameters.data() + offset;
}

void load_generic(Warp& warp, int lane, std::uint64_t address, void* to, std::uint32_t bytes) {
  const Target target = resolve_generic(warp, lane, address);
  const auto from = [&]() -> const std::byte* {
    switch (target.where) {
      case Target::Where::shared:
        return target.block->shared.read(warp.access(lane), static_cast<std::uint32_t>(target.address),
                                         bytes);
      case Target::Where::local:
        return local_at(warp, lane, target.address, bytes);
      case Target::Where::param:
        return parameter_at(warp, lane, target.address, bytes);
      case Target::Where::global:
        break;
    }
    const std::byte* const place = read_global(warp, lane, target.address, bytes, 1);
    if (GlobalRaces* const races = warp.launch().races) races->read(warp.access(lane), target.address, bytes);
    return place;
  };
  std::memcpy(to, from(), bytes);
}

}  // namespace jit::emulator
