#include "operations/barriers/mbarrier_wait.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

constexpr int try_wait_patience = 1;
constexpr int test_wait_patience = 8;

}  // namespace

bool is_waited_for(const Block& block, const Waitable& waitable) {
  return std::any_of(block.warps.begin(), block.warps.end(), [&](const auto& warp) {
    return std::any_of(warp->paths.begin(), warp->paths.end(),
                       [&](const Path& path) { return path.wait.on == &waitable; });
  });
}

bool has_ended(const Block& block) {
  return std::all_of(block.warps.begin(), block.warps.end(),
                     [](const auto& warp) { return warp->alive == 0; });
}

bool WaitForMbarrier::is_over(Warp& warp, int lane, const Mbarrier& mbarrier) const {
  if (by_parity) {
    const std::uint32_t parity = warp.r32(phase)[lane];
    if (parity > 1) {
      warp.report(FindingKind::barrier_misuse, lane,
                  fmt::format("waits for parity {} of {}: a parity is 0 or 1", parity, mbarrier.name()));
    }
    return mbarrier.parity_is_over(parity);
  }
  const std::uint64_t state = warp.r64(phase)[lane];
  if (mbarrier.knows(state)) return mbarrier.state_is_over(state);
  warp.report(
      FindingKind::barrier_misuse, lane,
      fmt::format("waits at {} with {:#018x}, which no arrival there has returned in this phase or the one "
                  "before",
                  mbarrier.name(), state));
  return true;
}

Flow WaitForMbarrier::execute(Warp& warp) const {
  std::uint32_t over = 0;
  std::array<Mbarrier*, warp_lanes> mbarriers;
  for_each_lane(warp.exec, [&](int lane) {
    const SharedPlace place = at.place(warp, lane);
    if (place.block != &warp.block) {
      warp.stop(
          FindingKind::barrier_misuse, lane,
          fmt::format(
              "waits for an mbarrier of block {} of the cluster: a thread can wait for those of its own "
              "block only",
              place.block->rank));
    }
    Mbarrier& mbarrier = use_mbarrier(warp, lane, place, "waits for");
    mbarriers[static_cast<std::size_t>(lane)] = &mbarrier;
    if (is_over(warp, lane, mbarrier)) over |= 1u << lane;
  });
  for_each_mbarrier(warp.exec, mbarriers, [&](Mbarrier& mbarrier, std::uint32_t lanes) {
    if (warp.launch().options.check_races) {
      mbarrier.note_use(warp.agent, lanes, warp.knowledge.time());
    }
    if ((lanes & over) == 0) return;
    mbarrier.forget_refusal(warp.agent);
    if (acquires) warp.knowledge.acquire(lanes & over, mbarrier.knowledge());
  });
  warp.set_predicate(result, over);
  // Lanes whose wait has ended may have to act before the others' can end.
  if (over != 0) return Flow::next;
  Mbarrier* first = nullptr;
  bool is_patient = false;
  for_each_mbarrier(warp.exec, mbarriers, [&](Mbarrier& mbarrier, std::uint32_t) {
    if (!first) first = &mbarrier;
    is_patient |= !mbarrier.refuse(warp.agent, suspends ? try_wait_patience : test_wait_patience);
  });
  return is_patient ? Flow::next : suspend(warp, *first);
}

Flow WaitForMbarrier::suspend(Warp& warp, const Mbarrier& mbarrier) {
  MbarrierTable& table = *warp.block.mbarriers;
  bool polls_others = false;
  for (const auto& [offset, other] : table.all) {
    if (other.get() == &mbarrier) continue;
    const std::optional<std::uint64_t> phase = other->refused_in(warp.agent);
    if (!phase) continue;
    if (*phase != other->phase()) {
      // The phase ended after the refusal: the warp must be able to ask again.
      other->forget_refusal(warp.agent);
      return Flow::next;
    }
    polls_others = true;
  }
  if (polls_others) return warp.wait_for(table, table.poll_token(mbarrier.offset()), false);
  return warp.wait_for(mbarrier, mbarrier.phase(), true);
}

}  // namespace jit::emulator
