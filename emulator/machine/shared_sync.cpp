#include "machine/shared_sync.h"

#include <utility>

#include "machine/warp.h"

namespace jit::emulator {

std::uint64_t SharedSync::thread(const Warp& warp, int lane) {
  return std::uint64_t{warp.agent} * warp_lanes + static_cast<std::uint64_t>(lane);
}

void SharedSync::write(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering, bool update) {
  std::shared_ptr<const Knowledge> released;
  if (ordering.releases) {
    released = std::make_shared<const Knowledge>(warp.knowledge.released(1u << lane));
    warp.knowledge.tick();
  } else {
    released = warp.block.shared.sync().fenced(warp, lane);
  }
  if (!released) {
    // An atomic passes on the releases that it has read, so they stay.
    if (!update) words_.erase(offset);
  } else if (update) {
    words_[offset].join(*released);
  } else {
    words_[offset] = *released;
  }
}

void SharedSync::read(Warp& warp, int lane, std::uint32_t offset, const Ordering& ordering) {
  const auto word = words_.find(offset);
  if (word == words_.end()) return;
  if (ordering.acquires) {
    warp.knowledge.acquire(1u << lane, word->second);
  } else {
    warp.block.shared.sync().observe(warp, lane, Scope::cta, word->second);
  }
}

void SharedSync::observe(const Warp& warp, int lane, Scope scope, const Knowledge& released) {
  fenced_[thread(warp, lane)].observed[static_cast<std::size_t>(scope)].join(released);
}

std::shared_ptr<const Knowledge> SharedSync::fenced(const Warp& warp, int lane, Scope scope) const {
  const auto found = fenced_.find(thread(warp, lane));
  return found == fenced_.end() ? nullptr : found->second.released[static_cast<std::size_t>(scope)];
}

void SharedSync::fence(Warp& warp, Scope scope) {
  for_each_lane(warp.exec, [&](int lane) {
    Fenced& fenced = fenced_[thread(warp, lane)];
    for (std::size_t i = 0; i <= static_cast<std::size_t>(scope); ++i) {
      const Knowledge observed = std::exchange(fenced.observed[i], {});
      if (!observed.empty()) warp.knowledge.acquire(1u << lane, observed);
    }
    const auto released = std::make_shared<const Knowledge>(warp.knowledge.released(1u << lane));
    for (std::size_t i = 0; i <= static_cast<std::size_t>(scope); ++i) fenced.released[i] = released;
  });
  warp.knowledge.tick();
}

}  // namespace jit::emulator
