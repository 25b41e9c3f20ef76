// The primary context of each device, and the current context of a thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include <cuda.h>

namespace jit::emulated_driver {

struct Device;
struct Stream;

struct Context {
  explicit Context(Device& device);

  Device& device;
  /// Locked exclusively by work of the legacy default stream, shared by work of blocking streams.
  std::shared_mutex legacy_order;
  const std::shared_ptr<Stream> legacy_stream;

  // State of devices with peers (Peers).
  std::atomic<bool> is_of_group = false;
  std::vector<int> queues, blocking_queues;  ///< of the context's streams; guarded by Peers
  std::mutex failures_mutex;
  std::string failures;  ///< findings since the last wait; guarded by failures_mutex

  // Counts of events that leave streams without running grids; a stream compares them with its last ones.
  std::atomic<std::uint64_t> waits = 0;           ///< for all streams
  std::atomic<std::uint64_t> legacy_works = 0;    ///< for blocking streams
  std::atomic<std::uint64_t> blocking_works = 0;  ///< for the legacy stream
};

/// The current context. Fails with CUDA_ERROR_INVALID_CONTEXT if there is none.
Context& current_context();
/// The handle of the current context; null if there is none.
CUcontext current_context_handle();

}  // namespace jit::emulated_driver
