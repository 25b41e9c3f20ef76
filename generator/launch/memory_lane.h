// Device memory of one stream, or of one captured stream: its work runs in order, so successive launches
// share the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <jit/device_buffer.h>

namespace jit {

/// A buffer that grows to the largest request; smaller ones live on for launches that are queued.
class GrowingMemory {
 public:
  /// At least `bytes` on `device`, aligned to 256. Fresh bytes have the value `first_byte`, or any value if
  /// it is negative. Throws Error driver_error if the device has no memory.
  const DeviceBuffer& at_least(int device, std::size_t bytes, int first_byte);

  /// Size of the largest request that needs no growth.
  std::size_t bytes() const { return buffers_.empty() ? 0 : buffers_.back()->size(); }

  /// All buffers handed out so far, the largest last.
  const std::vector<std::unique_ptr<const DeviceBuffer>>& all() const { return buffers_; }

 private:
  std::vector<std::unique_ptr<const DeviceBuffer>> buffers_;
};

/// Used by one call at a time, which holds `in_use` from its first request until its last launch is queued
/// (StreamLease).
struct MemoryLane {
  std::mutex in_use;
  GrowingMemory counters, workspaces, mailboxes, numbered;
};

}  // namespace jit
