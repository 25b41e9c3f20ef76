// Knowledge of a warp's lanes about each other and about other agents, and the warp's time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "machine/happens_before.h"

namespace jit::emulator {

/// Knowledge of a warp's lanes, per lane. Lanes with equal knowledge share a view; an event of a single lane
/// splits it off until they synchronize.
class LaneKnowledge {
 public:
  /// Knowledge of the lanes `lanes` of the warp `agent`.
  LaneKnowledge(Agent agent, std::uint32_t lanes) : agent_(agent), views_{View{lanes, {}, 0}} {}

  struct View {
    std::uint32_t lanes;
    Knowledge known;
    std::uint32_t fenced;  ///< time up to which the async proxy sees each lane's own writes
  };
  const View& of(int lane) const {
    std::size_t i = 0;
    while ((views_[i].lanes >> lane & 1) == 0) ++i;
    return views_[i];
  }
  bool is_shared() const { return views_.size() == 1; }
  /// The common knowledge of `lanes` about others. Valid until the next change.
  const Knowledge& common(std::uint32_t lanes);

  /// The warp's time, given to the current events of its lanes.
  std::uint32_t time() const { return time_; }
  /// Advances the time: later events are not part of earlier releases.
  void tick() { ++time_; }

  /// Adds the knowledge and events of `lanes` to `to`, for acquirers; tick() must follow.
  void release(std::uint32_t lanes, Knowledge& to) const;
  Knowledge released(std::uint32_t lanes) const {
    Knowledge knowledge;
    release(lanes, knowledge);
    return knowledge;
  }
  /// Adds `other` to the past of `lanes`.
  void acquire(std::uint32_t lanes, const Knowledge& other);
  /// Adds events of the agent's `of_lanes` up to `time` to the past of `lanes`.
  void acquire(std::uint32_t lanes, Agent agent, std::uint32_t of_lanes, std::uint32_t time);
  /// fence.proxy.async by `lanes`: the async proxy sees each lane's past in shared memory.
  void fence_proxy(std::uint32_t lanes);
  /// The async proxy also sees it in global memory; `own_cluster` is the number of the warp's cluster.
  void fence_global_proxy(std::uint32_t lanes, std::uint32_t own_cluster);
  /// Synchronizes `lanes`: each one's events and knowledge enter every one's past.
  void meet(std::uint32_t lanes);

 private:
  // Calls f(view) for views that cover exactly `lanes`, splitting views when needed.
  template <class F>
  void change(std::uint32_t lanes, F f);

  Agent agent_;
  std::uint32_t time_ = 1;
  std::vector<View> views_;
  Knowledge common_;
};

}  // namespace jit::emulator
