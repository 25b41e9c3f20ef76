// Device memory of captured launches. Work captured on one stream runs in order at each replay, so it shares
// memory; streams of one capture run concurrently and have separate memory. It lives until the graph and all
// its instantiations are destroyed.
//
// Instances of one graph share its memory, so their runs must not overlap.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include <cuda.h>

#include "generator/launch/memory_lane.h"

namespace jit {

/// Thread safe.
class GraphMemory {
 public:
  /// The memory of a stream that is being captured. Throws Error driver_error if the capture is invalid.
  std::shared_ptr<MemoryLane> lane(CUstream stream);

  /// Frees the memory of destroyed graphs.
  void free_unused();

 private:
  struct Capture {
    std::shared_ptr<const std::atomic<bool>> is_gone;
    /// By handle: drivers report no ids of streams that are being captured.
    std::map<CUstream, std::shared_ptr<MemoryLane>> lanes;
  };

  std::mutex mutex_;
  std::map<cuuint64_t, Capture> captures_;  ///< by id
};

}  // namespace jit
