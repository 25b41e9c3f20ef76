// Device memory of captured launches. What is captured on one stream runs one after another at each replay, so it uses
// one memory; streams of one capture run side by side, and have one each. A graph keeps what its capture was given until
// it is destroyed, and all that was instantiated from it.
//
// Runs of what was captured must follow one another: instances of one graph have one memory.
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
  /// Memory of a stream that is being captured. Throws Error driver_error when the stream takes no work.
  std::shared_ptr<MemoryLane> lane(CUstream stream);

  /// Gives memory of graphs that are gone back to the device.
  void free_unused();

 private:
  struct Capture {
    std::shared_ptr<const std::atomic<bool>> is_gone;
    /// By handle: a driver tells no ids of streams that are being captured.
    std::map<CUstream, std::shared_ptr<MemoryLane>> lanes;
  };

  std::mutex mutex_;
  std::map<cuuint64_t, Capture> captures_;  ///< by id
};

}  // namespace jit
