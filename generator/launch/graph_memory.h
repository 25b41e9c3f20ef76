// Device memory of captured launches. What is captured on one stream runs one after another at each replay, so it uses
// one memory; streams of one capture run side by side, and have one each. A graph keeps what its capture was given until
// it is destroyed, and all that was instantiated from it.
//
// Runs of what was captured must follow one another: instances of one graph have one memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <cuda.h>

#include <jit/device_buffer.h>

namespace jit {

/// Each function wants a stream of `device` that is being captured, and throws Error driver_error when the device has no
/// room or the stream takes no work. Thread safe.
class GraphMemory {
 public:
  /// At least `count` counters that are 0 between kernels.
  int* counters(int device, CUstream stream, int count);

  /// At least `bytes` of memory with any contents, aligned to 256: the largest that the stream's capture was given so
  /// far, where that is enough.
  void* workspace(int device, CUstream stream, std::size_t bytes);

  /// The same, but all bits of it are 1 between kernels.
  void* mailbox(int device, CUstream stream, std::size_t bytes);

  /// The same, but all bits of it are 1 at first alone; and how many bytes there are.
  std::span<std::byte> numbered(int device, CUstream stream, std::size_t bytes);

  /// Gives memory of graphs that are gone back to the device.
  void free_unused();

 private:
  /// Memory of one use, the largest last: launches that were captured before it was needed have the others.
  using Sizes = std::vector<std::unique_ptr<const DeviceBuffer>>;

  /// Of one stream of a capture.
  struct Lane {
    int* counters = nullptr;
    int counter_count = 0;
    Sizes workspaces, mailboxes, numbered;
  };
  struct Capture {
    std::shared_ptr<const std::atomic<bool>> is_gone;
    std::map<CUstream, Lane> lanes;  ///< by handle: a driver tells no ids of streams that are being captured
  };
  /// Counters side by side, of which some are given away for good: they are few bytes.
  struct Counters {
    std::unique_ptr<const DeviceBuffer> memory;
    std::size_t used_bytes = 0;
  };

  Lane& lane(CUstream stream);  // Requires: mutex_ is held
  /// The largest of all, with room for `bytes`; new ones have all bits 1.
  static const DeviceBuffer& filled(Sizes& sizes, int device, std::size_t bytes);
  int* take_counters(int device, int count);  // Requires: mutex_ is held

  std::mutex mutex_;
  std::map<cuuint64_t, Capture> captures_;         ///< by id
  std::map<int, std::vector<Counters>> counters_;  ///< by device, the last with room
};

}  // namespace jit
