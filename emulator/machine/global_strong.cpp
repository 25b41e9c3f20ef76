// Words with strong accesses, or with parts written by several threads: their accesses and releases.
#include <algorithm>

#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/launch.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

constexpr std::size_t most_touches = 1024;  // of one GlobalWord

constexpr int several_devices = -1;

}  // namespace

// The narrowest scope that includes this block and one of another cluster.
Scope GlobalRaces::scope_between(const Block& block, std::uint32_t cluster, unsigned rank) const {
  const std::uint32_t own = block.cluster.number;
  if (own != cluster) return group_ ? group_->between(own, cluster) : Scope::gpu;
  return block.rank == rank ? Scope::cta : Scope::cluster;
}

int GlobalRaces::device_of(std::uint32_t cluster) const { return group_ ? group_->of(cluster).device : 0; }

void GlobalRaces::update(Access access, std::uint64_t address, std::uint32_t bytes) {
  if (bytes == 0) return;
  access.strong = true;
  const Doing doing{access, access.warp->block.cluster.number, name(access), lane_of(access), address, bytes,
                    true};
  set_written(address, bytes);
  for_each_word(address, bytes, [&](Page&, std::size_t, std::uint64_t word, std::uint32_t which) {
    Shard& shard = shard_of(word);
    const std::lock_guard lock(shard.mutex);
    use(doing, move(shard, word), word, which);
  });
}

GlobalWord& GlobalRaces::move(Shard& shard, std::uint64_t word) {
  Page& page = shadow_.page(word * 4);
  const std::size_t i = word % GlobalShadow::page_words;
  GlobalWord& global = shard[word];
  const Touch write = Touch::from(page.writes[i].exchange(Touch::moved().bits()));
  if (write.is_moved()) return global;
  if (!write.is_none()) global.writes.push_back(write);
  const Touch read = Touch::from(page.reads[i / 4].load(std::memory_order_acquire));
  if ((read.bytes() >> i % 4 & 1) != 0) global.reads.push_back(read.of_bytes(Touch::all));
  return global;
}

void GlobalRaces::use(const Doing& doing, GlobalWord& global, std::uint64_t word, std::uint32_t bytes) {
  const auto check = [&](const std::vector<Touch>& touches, bool are_reads) {
    for (const Touch touch : touches) {
      if ((touch.bytes() & bytes) == 0 || may_be_together(doing, touch)) continue;
      if (!is_ordered(doing, touch)) {
        report(doing, touch, are_reads, word);
      } else if (!are_reads && !is_fenced(doing, touch)) {
        report_unfenced(doing, touch, word);
      }
    }
  };
  check(global.writes, false);
  if (doing.writes) check(global.reads, true);
  if (doing.index == 0) return;
  // A touch replaces those that happen before it: what follows it follows them. Strong touches have no order
  // among themselves; they replace touches that only strong ones need order with.
  const auto replace = [&](std::vector<Touch>& touches) {
    for (Touch& touch : touches) {
      const GlobalAccess& other = shadow_.access(touch.access());
      const bool is_alike = !doing.access.strong || (other.strong && other.scope == doing.scope);
      if (is_alike && is_ordered(doing, touch)) touch = touch.of_bytes(touch.bytes() & ~bytes);
    }
    std::erase_if(touches, [](Touch touch) { return touch.bytes() == 0; });
  };
  if (doing.writes) replace(global.writes);
  replace(global.reads);
  std::vector<Touch>& touches = doing.writes ? global.writes : global.reads;
  if (touches.size() < most_touches) touches.push_back(Touch(doing.index, doing.lane, bytes));
}

void GlobalRaces::acquire(Warp& warp, int lane, const GlobalWord& word, const Ordering& ordering) {
  const std::uint32_t own = warp.block.cluster.number;
  for (const GlobalWord::Release& release : word.releases) {
    const Scope needed = !release.by_many ? scope_between(warp.block, release.cluster, release.rank)
                         : release.device == device_of(own) ? Scope::gpu
                                                            : Scope::sys;
    if (release.scope < needed || ordering.scope < needed) continue;
    const Knowledge& known = warp.knowledge.of(lane).known;
    if (known.other_clusters.is_shared_with(release.past) &&
        known.async_global.is_shared_with(release.async_past))
      continue;
    Knowledge released;
    if (const VectorClock* const past = release.past.of(own)) released.past = *past;
    released.other_clusters = release.past;
    released.async_global = release.async_past;
    if (ordering.acquires) {
      warp.knowledge.acquire(1u << lane, released);
    } else {
      warp.block.shared.sync().observe(warp, lane, needed, released);
    }
  }
}

void GlobalRaces::release(Warp& warp, int lane, GlobalWord& word, const Ordering& ordering, Kind kind) {
  if (kind == Kind::store) word.releases.clear();
  const std::uint32_t own = warp.block.cluster.number;
  const auto add = [&](Scope scope, const Knowledge& released) {
    GridClock past = released.other_clusters;
    past.learn(own, released.past);
    for (GlobalWord::Release& other : word.releases) {
      const bool is_own = other.cluster == own && other.rank == warp.block.rank && !other.by_many;
      const bool is_of_device = other.device == device_of(own);
      if (other.scope != scope || (!is_own && (scope < Scope::gpu || (scope == Scope::gpu && !is_of_device))))
        continue;
      other.past.join(past);
      other.async_past.join(released.async_global);
      other.by_many = !is_own;
      if (!is_of_device) other.device = several_devices;
      return;
    }
    word.releases.push_back(
        {scope, own, warp.block.rank, device_of(own), false, std::move(past), released.async_global});
  };
  if (ordering.releases) {
    add(ordering.scope, warp.knowledge.released(1u << lane));
    warp.knowledge.tick();
    return;
  }
  std::shared_ptr<const Knowledge> wider;
  for (int scope = static_cast<int>(ordering.scope); scope >= 0; --scope) {
    const auto fenced = warp.block.shared.sync().fenced(warp, lane, static_cast<Scope>(scope));
    if (fenced && fenced != wider) add(static_cast<Scope>(scope), *fenced);
    wider = fenced;
  }
}

void GlobalRaces::strong(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, Kind kind,
                         const Ordering& ordering, const std::function<void()>& change) {
  Shard& shard = shard_of((address - begin_) / 4);
  const std::lock_guard lock(shard.mutex);
  set_written(address, bytes);
  for_each_word(address, bytes, [&](Page&, std::size_t, std::uint64_t word, std::uint32_t) {
    GlobalWord& global = move(shard, word);
    if (kind != Kind::store) acquire(warp, lane, global, ordering);
  });
  Access access = warp.access(lane);
  access.strong = true;
  const Doing doing{access,
                    warp.block.cluster.number,
                    name(access, ordering.scope),
                    lane,
                    address,
                    bytes,
                    kind != Kind::load,
                    ordering.scope};
  for_each_word(address, bytes, [&](Page&, std::size_t, std::uint64_t word, std::uint32_t which) {
    use(doing, shard[word], word, which);
  });
  change();
  if (kind == Kind::load) return;
  for_each_word(address, bytes, [&](Page&, std::size_t, std::uint64_t word, std::uint32_t) {
    release(warp, lane, shard[word], ordering, kind);
  });
}

}  // namespace jit::emulator
