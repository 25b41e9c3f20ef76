// Happens-before relation: vector clocks over the agents of a cluster (Flanagan and Freund, "FastTrack:
// Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// Agents are the warps of the cluster's blocks, and one for each mbarrier, for the asynchronous operations
// that complete on it. A warp has one time, which increases whenever some of its lanes release something: at
// barriers, mbarrier arrivals, fences. Knowledge of that time is kept per lane.
#pragma once

#include <cstdint>

#include "machine/vector_clock.h"

namespace jit::emulator {

struct Warp;

/// Events in an agent's past, and the generic-proxy writes among them that the async proxy also sees, since a
/// fence.proxy.async followed them (PTX ISA, "Proxies"), in shared or in global memory.
struct Knowledge {
  VectorClock past;
  VectorClock async_past;  ///< of shared memory
  GridClock other_clusters;
  GridClock async_global;  ///< of global memory, including the own cluster

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
  Warp* warp = nullptr;  ///< for the report: the issuer
  std::uint32_t pc = 0;  ///< for the report: index in Kernel::code
  Agent agent = 0;
  std::uint32_t time = 0;  ///< the agent's
  std::uint32_t lanes = all_lanes;
  /// Whether the lanes access jointly, as in ldmatrix; else each lane has an access of its own.
  bool together = true;
  Proxy proxy = Proxy::generic;
  /// Events before the access; for an asynchronous one, before its issue.
  const Knowledge* knowledge = nullptr;
  std::uint32_t fenced = 0;  ///< see LaneKnowledge::View
  /// Atomic, volatile, relaxed, acquire or release: two strong accesses never race.
  bool strong = false;
};

}  // namespace jit::emulator
