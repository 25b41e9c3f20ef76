#include "machine/lane_knowledge.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace jit::emulator {

template <class F>
void LaneKnowledge::change(std::uint32_t lanes, F f) {
  for (std::size_t i = 0, count = views_.size(); i < count; ++i) {
    const std::uint32_t changed = views_[i].lanes & lanes;
    if (changed == 0) continue;
    if (changed == views_[i].lanes) {
      f(views_[i]);
      continue;
    }
    View part = views_[i];
    views_[i].lanes &= ~changed;
    part.lanes = changed;
    f(part);
    views_.push_back(std::move(part));
  }
}

const Knowledge& LaneKnowledge::common(std::uint32_t lanes) {
  if (is_shared()) return views_.front().known;
  bool is_first = true;
  for (const View& view : views_) {
    if ((view.lanes & lanes) == 0) continue;
    Knowledge known = view.known;
    // A lane that shares its view with no other knows its own events.
    if (std::has_single_bit(view.lanes)) {
      known.past.raise(agent_, view.lanes, time_);
      known.async_past.raise(agent_, view.lanes, view.fenced);
    }
    if (is_first) {
      common_ = std::move(known);
    } else {
      common_.past = VectorClock::meet(common_.past, known.past);
      common_.async_past = VectorClock::meet(common_.async_past, known.async_past);
      common_.other_clusters = GridClock::meet(common_.other_clusters, known.other_clusters);
      common_.async_global = GridClock::meet(common_.async_global, known.async_global);
    }
    is_first = false;
  }
  return common_;
}

void LaneKnowledge::release(std::uint32_t lanes, Knowledge& to) const {
  for (const View& view : views_) {
    if ((view.lanes & lanes) == 0) continue;
    to.join(view.known);
    // Missing lanes of a partial warp may be included: they never act.
    const std::uint32_t own = is_shared() ? lanes : view.lanes & lanes;
    to.past.raise(agent_, own, time_);
    to.async_past.raise(agent_, own, view.fenced);
  }
}

void LaneKnowledge::acquire(std::uint32_t lanes, const Knowledge& other) {
  change(lanes, [&](View& view) { view.known.join(other); });
}

void LaneKnowledge::acquire(std::uint32_t lanes, Agent agent, std::uint32_t of_lanes, std::uint32_t time) {
  change(lanes, [&](View& view) { view.known.past.raise(agent, of_lanes, time); });
}

void LaneKnowledge::fence_proxy(std::uint32_t lanes) {
  change(lanes, [&](View& view) {
    view.known.async_past.join(view.known.past);
    view.fenced = time_;
  });
  tick();
}

void LaneKnowledge::fence_global_proxy(std::uint32_t lanes, std::uint32_t own_cluster) {
  change(lanes, [&](View& view) {
    VectorClock own = view.known.past;
    own.raise(agent_, view.lanes & lanes, time_);
    view.known.async_global.join(view.known.other_clusters);
    view.known.async_global.learn(own_cluster, std::move(own));
  });
  tick();
}

void LaneKnowledge::meet(std::uint32_t lanes) {
  if (is_shared() && (views_.front().lanes & ~lanes) == 0) {
    View& view = views_.front();
    view.known.past.raise(agent_, lanes, time_);
    view.known.async_past.raise(agent_, lanes, view.fenced);
  } else {
    View together{0, released(lanes), 0};
    for (View& view : views_) {
      together.lanes |= view.lanes & lanes;
      view.lanes &= ~lanes;
    }
    std::erase_if(views_, [](const View& view) { return view.lanes == 0; });
    views_.push_back(std::move(together));
  }
  tick();
}

}  // namespace jit::emulator
