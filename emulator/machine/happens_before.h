// Who did what before whom: vector clocks over the agents of a cluster (Flanagan and Freund, "FastTrack:
// Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// Agents are the warps of the cluster's blocks, and one for each mbarrier, which stands for the asynchronous
// operations that complete on it. A warp's time goes up whenever it releases something: at barriers, mbarrier
// arrivals, fences. Lanes of one warp share a clock; among them `Access::converged_time` decides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace jit::emulator {

struct Warp;

using Agent = std::uint32_t;

/// The last time of each agent that is known to lie in the past. Unknown agents count 0.
class VectorClock {
 public:
  std::uint32_t at(Agent agent) const { return agent < times_.size() ? times_[agent] : 0; }
  void raise(Agent agent, std::uint32_t time) {
    if (agent >= times_.size()) times_.resize(agent + 1, 0);
    times_[agent] = std::max(times_[agent], time);
  }
  void join(const VectorClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<std::uint32_t> times_;
};

/// What lies in the past of an agent, and which generic-proxy writes of it the async proxy sees, too: those
/// that a fence.proxy.async has followed on the way here (PTX ISA, "Proxies").
struct Knowledge {
  VectorClock past;
  VectorClock async_past;

  void join(const Knowledge& other) {
    past.join(other.past);
    async_past.join(other.async_past);
  }
};

enum class Proxy : std::uint8_t { generic, async };

/// All lanes at once, as in ldmatrix: in program order with each of them.
inline constexpr std::uint8_t whole_warp = 0xff;

/// One access to shared memory, as the race detector sees it.
struct Access {
  Warp* warp = nullptr;  ///< for the report: who issued it
  std::uint32_t pc = 0;  ///< for the report: index in Kernel::code
  Agent agent = 0;
  std::uint32_t time = 0;  ///< the agent's
  std::uint8_t lane = whole_warp;
  Proxy proxy = Proxy::generic;
  const Knowledge* knowledge =
      nullptr;  ///< what lies before the access; for an asynchronous one, before its issue
  /// Accesses of other lanes of the same warp lie in the past when they are earlier than this.
  std::uint32_t converged_time = 0;
  /// Atomic, volatile, relaxed, acquire or release: two of these never race with each other.
  bool strong = false;
};

}  // namespace jit::emulator
