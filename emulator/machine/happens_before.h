// Who did what before whom: vector clocks over the agents of a cluster (Flanagan and Freund, "FastTrack:
// Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// Agents are the warps of the cluster's blocks, and one for each mbarrier, which stands for the asynchronous
// operations that complete on it. A warp has one time, which goes up whenever some of its lanes release
// something: at barriers, mbarrier arrivals, fences. What is known of that time is known lane by lane.
#pragma once

#include <cstdint>

#include "machine/vector_clock.h"

namespace jit::emulator {

struct Warp;

/// Events in an agent's past, and which generic-proxy writes of it the async proxy sees, too: those that a
/// fence.proxy.async has followed on the way here (PTX ISA, "Proxies"), of shared or of global memory.
struct Knowledge {
  VectorClock past;
  VectorClock async_past;  ///< of shared memory
  GridClock other_clusters;
  GridClock async_global;  ///< of global memory, and of the own cluster as well

  void join(const Knowledge& other) {
    past.join(other.past);
    async_past.join(other.async_past);
    other_clusters.join(other.other_clusters);
    async_global.join(other.async_global);
  }
  bool empty() const {
    return past.empty() && async_past.empty() && other_clusters.empty() && async_global.empty();
  }
};

enum class Proxy : std::uint8_t { generic, async };

/// One access to shared or global memory, as the race detectors see it.
struct Access {
  Warp* warp = nullptr;  ///< for the report: who issued it
  std::uint32_t pc = 0;  ///< for the report: index in Kernel::code
  Agent agent = 0;
  std::uint32_t time = 0;  ///< the agent's
  std::uint32_t lanes = all_lanes;
  /// The lanes do it as one, as in ldmatrix; else each accesses what is its own.
  bool together = true;
  Proxy proxy = Proxy::generic;
  /// Events before the access; for an asynchronous one, before its issue.
  const Knowledge* knowledge = nullptr;
  std::uint32_t fenced = 0;  ///< as LaneKnowledge::View says it
  /// Atomic, volatile, relaxed, acquire or release: two of these never race with each other.
  bool strong = false;
};

}  // namespace jit::emulator
