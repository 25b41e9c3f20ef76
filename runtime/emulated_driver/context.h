// Contexts: the primary one of each device, and which is current on a thread.
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
  /// Held exclusively by work of the legacy default stream, shared by that of streams which wait for it.
  std::shared_mutex legacy_order;
  const std::shared_ptr<Stream> legacy_stream;

  // A device with peers has these (Peers).
  std::atomic<bool> is_of_group = false;
  std::vector<int> queues, blocking_queues;  ///< of its streams; guarded by Peers
  std::mutex failures_mutex;
  std::string failures;  ///< what was found since somebody waited; guarded by failures_mutex

  // Counts of what leaves streams with no grid that runs, by which each stream knows that there was more of it.
  std::atomic<std::uint64_t> waits = 0;           ///< for all streams
  std::atomic<std::uint64_t> legacy_works = 0;    ///< they wait for blocking streams, which wait for them
  std::atomic<std::uint64_t> blocking_works = 0;  ///< they wait for the legacy stream, which waits for them
};

/// Fails with CUDA_ERROR_INVALID_CONTEXT when none is current.
Context& current_context();
/// The current context as a handle; null when none is current.
CUcontext current_context_handle();

}  // namespace jit::emulated_driver
