// Who did what before whom: vector clocks over the agents of a cluster (Flanagan and Freund, "FastTrack:
// Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// Agents are the warps of the cluster's blocks, and one for each mbarrier, which stands for the asynchronous
// operations that complete on it. A warp has one time, which goes up whenever some of its lanes release
// something: at barriers, mbarrier arrivals, fences. What is known of that time is known lane by lane.
#pragma once

#include <cstdint>
#include <vector>

namespace jit::emulator {

struct Warp;

using Agent = std::uint32_t;

inline constexpr std::uint32_t all_lanes = 0xffffffffu;

/// The last time of each agent's lanes that is known to lie in the past; 0 of those that nothing is known of.
/// Of an mbarrier all lanes do the same.
class VectorClock {
 public:
  /// Of all lanes of an agent.
  std::uint32_t at(Agent agent) const { return agent < times_.size() ? times_[agent] : 0; }
  /// The lanes of an agent whose `time` lies in the past.
  std::uint32_t lanes_at(Agent agent, std::uint32_t time) const {
    if (at(agent) >= time) return all_lanes;
    std::uint32_t lanes = 0;
    for (const Ahead& ahead : ahead_) {
      if (ahead.agent == agent && ahead.time >= time) lanes |= ahead.lanes;
    }
    return lanes;
  }
  void raise(Agent agent, std::uint32_t lanes, std::uint32_t time);
  void join(const VectorClock& other);
  bool empty() const { return times_.empty() && ahead_.empty(); }

  /// What lies in the past of both.
  static VectorClock meet(const VectorClock& a, const VectorClock& b);

 private:
  // Lanes of which more is known than of all. Each lane is in one at most.
  struct Ahead {
    Agent agent;
    std::uint32_t lanes;
    std::uint32_t time;
  };
  void raise_all(Agent agent, std::uint32_t time);

  std::vector<std::uint32_t> times_;
  std::vector<Ahead> ahead_;
};

/// What lies in somebody's past, and which generic-proxy writes of it the async proxy sees, too: those that a
/// fence.proxy.async has followed on the way here (PTX ISA, "Proxies").
struct Knowledge {
  VectorClock past;
  VectorClock async_past;

  void join(const Knowledge& other) {
    past.join(other.past);
    async_past.join(other.async_past);
  }
  bool empty() const { return past.empty() && async_past.empty(); }
};

enum class Proxy : std::uint8_t { generic, async };

/// One access to shared memory, as the race detector sees it.
struct Access {
  Warp* warp = nullptr;  ///< for the report: who issued it
  std::uint32_t pc = 0;  ///< for the report: index in Kernel::code
  Agent agent = 0;
  std::uint32_t time = 0;  ///< the agent's
  std::uint32_t lanes = all_lanes;
  /// The lanes do it as one, as in ldmatrix; else each accesses what is its own.
  bool together = true;
  Proxy proxy = Proxy::generic;
  /// What lies before the access; for an asynchronous one, before its issue.
  const Knowledge* knowledge = nullptr;
  std::uint32_t fenced = 0;  ///< as LaneKnowledge::View says it
  /// Atomic, volatile, relaxed, acquire or release: two of these never race with each other.
  bool strong = false;
};

}  // namespace jit::emulator
