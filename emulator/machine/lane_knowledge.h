// Knowledge of a warp's lanes about each other and of others, and the warp's time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "machine/happens_before.h"

namespace jit::emulator {

/// Knowledge of the lanes of a warp, each for itself. Lanes that know the same share a view of it; what one
/// does alone parts it from the others until they meet.
class LaneKnowledge {
 public:
  /// Knowledge of the lanes `lanes` of the warp `agent`.
  LaneKnowledge(Agent agent, std::uint32_t lanes) : agent_(agent), views_{View{lanes, {}, 0}} {}

  struct View {
    std::uint32_t lanes;
    Knowledge known;
    std::uint32_t fenced;  ///< time until which the async proxy sees each lane's own writes
  };
  const View& of(int lane) const {
    std::size_t i = 0;
    while ((views_[i].lanes >> lane & 1) == 0) ++i;
    return views_[i];
  }
  bool is_shared() const { return views_.size() == 1; }
  /// Knowledge that all of `lanes` share about others. Valid until the next change.
  const Knowledge& common(std::uint32_t lanes);

  /// The warp's time: that of what its lanes do now.
  std::uint32_t time() const { return time_; }
  /// Later events of the lanes are not part of what they have released.
  void tick() { ++time_; }

  /// Releases what `lanes` know and have done, to be in the past of whoever learns it; tick() follows.
  void release(std::uint32_t lanes, Knowledge& to) const;
  Knowledge released(std::uint32_t lanes) const {
    Knowledge knowledge;
    release(lanes, knowledge);
    return knowledge;
  }
  /// Everything in `other` lies in the past of `lanes` from now on.
  void acquire(std::uint32_t lanes, const Knowledge& other);
  /// The agent's `of_lanes` have come to `time` in the past of `lanes`.
  void acquire(std::uint32_t lanes, Agent agent, std::uint32_t of_lanes, std::uint32_t time);
  /// fence.proxy.async by `lanes`: the async proxy sees all that lies in the past of each, in shared memory.
  void fence_proxy(std::uint32_t lanes);
  /// The async proxy sees it in global memory as well; `own_cluster` is the number of the warp's own.
  void fence_global_proxy(std::uint32_t lanes, std::uint32_t own_cluster);
  /// Orders `lanes` with each other: what any did or knew lies in the past of each.
  void meet(std::uint32_t lanes);

 private:
  // Calls f(view) so that the views it is called for are those of `lanes`.
  template <class F>
  void change(std::uint32_t lanes, F f);

  Agent agent_;
  std::uint32_t time_ = 1;
  std::vector<View> views_;
  Knowledge common_;
};

}  // namespace jit::emulator
