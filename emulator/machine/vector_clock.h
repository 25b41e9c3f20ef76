// Times of agents: those of one cluster, and those of the grid's other clusters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace jit::emulator {

using Agent = std::uint32_t;

inline constexpr std::uint32_t all_lanes = 0xffffffffu;

/// The last time of each agent's lanes that is known to be in the past; 0: none. All lanes of an mbarrier's
/// agent have the same time.
class VectorClock {
 public:
  /// The time of all lanes of an agent.
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
  /// Whether all knowledge of `other` is also known here.
  bool covers(const VectorClock& other) const;

  /// The meet: the common past of both.
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

/// Knowledge of other clusters' agents, by cluster number in the grid. Its entry for the own cluster may lag
/// behind. Copies share their entries.
class GridClock {
 public:
  /// Null: nothing is known.
  const VectorClock* of(std::uint32_t cluster) const;
  void join(const GridClock& other);
  void learn(std::uint32_t cluster, VectorClock past);
  /// Whether both share their entries: a fast test that a join changes nothing.
  bool is_shared_with(const GridClock& other) const { return entries_ == other.entries_; }
  bool empty() const { return !entries_; }

  static GridClock meet(const GridClock& a, const GridClock& b);

 private:
  struct Entry {
    std::uint32_t cluster;
    std::shared_ptr<const VectorClock> past;
  };
  using Entries = std::vector<Entry>;  // by cluster, never empty

  static bool covers(const Entries& all, const Entries& some);
  void set(Entries entries);

  std::shared_ptr<const Entries> entries_;
};

}  // namespace jit::emulator
