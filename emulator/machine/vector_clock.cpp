#include "machine/vector_clock.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace jit::emulator {

void VectorClock::raise_all(Agent agent, std::uint32_t time) {
  if (agent >= times_.size()) times_.resize(agent + 1, 0);
  times_[agent] = time;
  std::erase_if(ahead_, [&](const Ahead& ahead) { return ahead.agent == agent && ahead.time <= time; });
}

void VectorClock::raise(Agent agent, std::uint32_t lanes, std::uint32_t time) {
  if (at(agent) >= time) return;
  if (lanes == all_lanes) return raise_all(agent, time);
  std::uint32_t news = lanes;
  for (Ahead& ahead : ahead_) {
    if (ahead.agent != agent) continue;
    if (ahead.time >= time) {
      news &= ~ahead.lanes;
    } else {
      ahead.lanes &= ~lanes;
    }
  }
  if (news == 0) return;
  ahead_.push_back({agent, news, time});
  std::erase_if(ahead_, [](const Ahead& ahead) { return ahead.lanes == 0; });
  // When every lane has an entry ahead, the common time rises to the least of them.
  std::uint32_t covered = 0, least = time;
  for (const Ahead& ahead : ahead_) {
    if (ahead.agent != agent) continue;
    covered |= ahead.lanes;
    least = std::min(least, ahead.time);
  }
  if (covered == all_lanes) raise_all(agent, least);
}

void VectorClock::join(const VectorClock& other) {
  if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
  for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  std::erase_if(ahead_, [&](const Ahead& ahead) { return ahead.time <= at(ahead.agent); });
  for (const Ahead& ahead : other.ahead_) raise(ahead.agent, ahead.lanes, ahead.time);
}

bool VectorClock::covers(const VectorClock& other) const {
  for (Agent agent = 0; agent < other.times_.size(); ++agent) {
    if (lanes_at(agent, other.times_[agent]) != all_lanes) return false;
  }
  return std::all_of(other.ahead_.begin(), other.ahead_.end(), [&](const Ahead& ahead) {
    return (ahead.lanes & ~lanes_at(ahead.agent, ahead.time)) == 0;
  });
}

VectorClock VectorClock::meet(const VectorClock& a, const VectorClock& b) {
  VectorClock both;
  const auto add = [&](const VectorClock& from, const VectorClock& other) {
    for (Agent agent = 0; agent < from.times_.size(); ++agent) {
      both.raise(agent, other.lanes_at(agent, from.times_[agent]), from.times_[agent]);
    }
    for (const Ahead& ahead : from.ahead_) {
      both.raise(ahead.agent, ahead.lanes & other.lanes_at(ahead.agent, ahead.time), ahead.time);
    }
  };
  add(a, b);
  add(b, a);
  return both;
}

const VectorClock* GridClock::of(std::uint32_t cluster) const {
  if (!entries_) return nullptr;
  const auto found =
      std::lower_bound(entries_->begin(), entries_->end(), cluster,
                       [](const Entry& entry, std::uint32_t wanted) { return entry.cluster < wanted; });
  return found != entries_->end() && found->cluster == cluster ? found->past.get() : nullptr;
}

bool GridClock::covers(const Entries& all, const Entries& some) {
  auto known = all.begin();
  for (const Entry& entry : some) {
    while (known != all.end() && known->cluster < entry.cluster) ++known;
    if (known == all.end() || known->cluster != entry.cluster) return false;
    if (known->past != entry.past && !known->past->covers(*entry.past)) return false;
  }
  return true;
}

void GridClock::set(Entries entries) {
  entries_ = entries.empty() ? nullptr : std::make_shared<const Entries>(std::move(entries));
}

void GridClock::join(const GridClock& other) {
  if (!other.entries_ || other.entries_ == entries_) return;
  // The larger clock is shared, so that the next comparison is by pointer.
  if (!entries_ || covers(*other.entries_, *entries_)) {
    entries_ = other.entries_;
    return;
  }
  if (covers(*entries_, *other.entries_)) return;
  Entries both;
  auto mine = entries_->begin();
  for (const Entry& theirs : *other.entries_) {
    for (; mine != entries_->end() && mine->cluster < theirs.cluster; ++mine) both.push_back(*mine);
    if (mine == entries_->end() || mine->cluster != theirs.cluster || theirs.past->covers(*mine->past)) {
      both.push_back(theirs);
    } else if (mine->past->covers(*theirs.past)) {
      both.push_back(*mine);
    } else {
      auto past = std::make_shared<VectorClock>(*mine->past);
      past->join(*theirs.past);
      both.push_back({theirs.cluster, std::move(past)});
    }
    if (mine != entries_->end() && mine->cluster == theirs.cluster) ++mine;
  }
  both.insert(both.end(), mine, entries_->end());
  set(std::move(both));
}

void GridClock::learn(std::uint32_t cluster, VectorClock past) {
  GridClock one;
  one.set({{cluster, std::make_shared<const VectorClock>(std::move(past))}});
  join(one);
}

GridClock GridClock::meet(const GridClock& a, const GridClock& b) {
  if (a.entries_ == b.entries_ || !a.entries_) return a;
  Entries both;
  for (const Entry& entry : *a.entries_) {
    const VectorClock* const other = b.of(entry.cluster);
    if (!other) continue;
    both.push_back({entry.cluster, other == entry.past.get() ? entry.past
                                                             : std::make_shared<const VectorClock>(
                                                                   VectorClock::meet(*entry.past, *other))});
  }
  GridClock clock;
  clock.set(std::move(both));
  return clock;
}

}  // namespace jit::emulator
