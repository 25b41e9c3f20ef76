// Reports of GlobalRaces about a race.
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/launch.h"
#include "machine/memory_access.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

// ctaid of the block.
std::array<std::uint64_t, 3> index_of(const LaunchShape& shape, std::uint32_t cluster, unsigned rank) {
  std::array<std::uint64_t, 3> index;
  std::uint64_t left = cluster, rank_left = rank;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::uint64_t clusters = shape.grid[d] / shape.cluster[d];
    index[d] = left % clusters * shape.cluster[d] + rank_left % shape.cluster[d];
    left /= clusters;
    rank_left /= shape.cluster[d];
  }
  return index;
}

// ", to which the kernel's parameter forward_param_0 points at byte 24"; nothing where none does.
std::string pointer_text(const Launch& launch, std::uint64_t address) {
  const MemoryRange range = launch.memory.allocation_of(address);
  std::uint64_t nearest = 0;
  std::string text;
  for (const Parameter& parameter : launch.kernel.parameters) {
    for (std::size_t at = 0; at + 8 <= parameter.bytes; at += 8) {
      std::uint64_t value = 0;
      std::memcpy(&value, launch.parameters.data() + parameter.offset + at, sizeof(value));
      if (value < range.begin || value > address || value < nearest || value - range.begin >= range.bytes)
        continue;
      nearest = value + 1;
      text = fmt::format(", to which parameter {}{} points", parameter.name,
                         parameter.bytes == 8 ? "" : fmt::format(" at byte {}", at));
    }
  }
  return text;
}

}  // namespace

// "block (3, 0, 0) warp 2 lane 5 wrote … with st.global.v4.f32 at results.cuh:120"
std::string GlobalRaces::describe(Touch touch, const char* verb) {
  if (group_) return describe_member(touch, verb);
  const GlobalAccess& access = shadow_.access(touch.access());
  if (grids_.is_in_front(access.cluster))
    return fmt::format("the grid of {} in front {} it", grids_.kernel_of(access.cluster), verb);
  const Kernel& kernel = launch_->kernel;
  const auto block = index_of(launch_->shape, access.cluster - grids_.first_cluster(), access.rank);
  const std::string name = access.pc < kernel.info.size() ? kernel.info[access.pc].name : "an instruction";
  return fmt::format("block ({}, {}, {}) warp {} lane {} {} it with {} at {}", block[0], block[1], block[2],
                     access.warp, touch.lane(), verb, name, place_of(kernel, access.pc));
}

// "device 1's block (3, 0, 0) of attention_forward warp 2 lane 5 wrote it with …", "a copy of device 0 wrote it"
std::string GlobalRaces::describe_member(Touch touch, const char* verb) {
  const GlobalAccess& access = shadow_.access(touch.access());
  const GroupMember& member = group_->of(access.cluster);
  if (!member.kernel) return fmt::format("{} of device {} {} it", member.name, member.device, verb);
  const Kernel& kernel = *member.kernel;
  const auto block = index_of(member.shape, access.cluster - member.first_cluster(), access.rank);
  const std::string name = access.pc < kernel.info.size() ? kernel.info[access.pc].name : "an instruction";
  return fmt::format("{} of device {} block ({}, {}, {}) warp {} lane {} {} it with {} at {}", member.name,
                     member.device, block[0], block[1], block[2], access.warp, touch.lane(), verb, name,
                     place_of(kernel, access.pc));
}

// "writes 16 bytes of global memory: …; block (3, 0, 0) warp 2 lane 5 wrote it …"
std::string GlobalRaces::text_of(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word) {
  const std::uint64_t address =
      word * 4 + begin_ + static_cast<std::uint32_t>(std::countr_zero(earlier.bytes()));
  const char* const verb = doing.writes ? "writes" : "reads";
  if (doing.copy) {
    return fmt::format("{} {} bytes of global memory at {:#x}; {}", verb, doing.bytes, address,
                       describe(earlier, with_read ? "read" : "wrote"));
  }
  const Launch& launch = doing.access.warp->launch();
  return fmt::format("{} {} bytes of global memory: {}{}; {}", verb, doing.bytes,
                     launch.memory.describe(address), pointer_text(launch, address),
                     describe(earlier, with_read ? "read" : "wrote"));
}

void GlobalRaces::report(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word) {
  if (doing.copy) return report_of_copy(doing, earlier, with_read, word);
  const Access& access = doing.access;
  const Launch& launch = access.warp->launch();
  if (!is_news(launch, FindingKind::data_race, access.pc)) return;
  const GlobalAccess& other = shadow_.access(earlier.access());
  const char* const why = !group_ && grids_.is_in_front(other.cluster)
                              ? "and this thread is not behind a griddepcontrol.wait for it"
                          : access.strong && other.strong
                              ? "and the scope of one does not take in the block of the other"
                              : "and nothing orders the two";
  launch.report_at(access.pc, FindingKind::data_race, *access.warp, doing.lane,
                   text_of(doing, earlier, with_read, word) + ", " + why);
}

void GlobalRaces::report_of_copy(const Doing& doing, Touch earlier, bool with_read, std::uint64_t word) {
  doing.copy->report(FindingKind::data_race,
                     text_of(doing, earlier, with_read, word) + ", and nothing orders the two");
}

void GlobalRaces::report_unfenced(const Doing& doing, Touch write, std::uint64_t word) {
  const Access& access = doing.access;
  const Launch& launch = access.warp->launch();
  if (!is_news(launch, FindingKind::missing_proxy_fence, access.pc)) return;
  launch.report_at(
      access.pc, FindingKind::missing_proxy_fence, *access.warp, doing.lane,
      text_of(doing, write, false, word) + ", which the async proxy sees only behind a fence.proxy.async");
}

}  // namespace jit::emulator
