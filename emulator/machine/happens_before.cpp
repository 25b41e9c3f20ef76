#include "emulator/machine/happens_before.h"

#include <algorithm>
#include <cstddef>

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
  // Where every lane is ahead, all have come as far as the last of them.
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

}  // namespace jit::emulator
