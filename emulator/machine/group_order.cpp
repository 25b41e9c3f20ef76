#include "machine/group_order.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "machine/warp.h"

namespace jit::emulator {

void GroupMember::wait(Warp& warp) {
  warp.block.waits_for_grids = true;
  warp.knowledge.acquire(warp.exec, Knowledge{{}, {}, behind_wait, {}});
}

void GroupMember::let_next_begin(Warp& warp) {
  if (std::exchange(warp.block.lets_next_grid_begin, true)) return;
  if (warp.knowledge.common(warp.exec).other_clusters.of(in_front)) lets_behind_wait = true;
}

void GroupMember::end_of(const Block& block) {
  for (const auto& warp : block.warps) learned.join(warp->knowledge.released(all_lanes).other_clusters);
  if (block.waits_for_grids && !block.lets_next_grid_begin) lets_behind_wait = true;
}

bool GroupOrder::has_numbers_for(std::uint64_t clusters) const {
  const std::uint32_t used = members_.empty() ? 0 : members_.back().end;
  return clusters < std::numeric_limits<std::uint32_t>::max() - used - 1;
}

GroupMember& GroupOrder::add(std::uint64_t clusters) {
  const std::uint32_t number = members_.empty() ? 0 : members_.back().end;
  const std::uint32_t end = number + 1 + static_cast<std::uint32_t>(clusters);
  return members_.emplace_back(GroupMember{.number = number, .end = end, .name = {}, .in_front = number});
}

const GroupMember& GroupOrder::of(std::uint32_t cluster) const {
  const auto behind = std::upper_bound(
      members_.begin(), members_.end(), cluster,
      [](std::uint32_t wanted, const GroupMember& member) { return wanted < member.number; });
  return *std::prev(behind);
}

Scope GroupOrder::between(std::uint32_t a, std::uint32_t b) const {
  return of(a).device == of(b).device ? Scope::gpu : Scope::sys;
}

bool GroupOrder::has_ended(std::uint32_t cluster, const GridClock& known) const {
  return known.of(of(cluster).number) != nullptr;
}

GridClock GroupOrder::end_of(const GroupMember& member) {
  VectorClock ended;
  ended.raise(0, all_lanes, 1);
  GridClock clock;
  clock.learn(member.number, std::move(ended));
  return clock;
}

}  // namespace jit::emulator
