// Device memory of one stream, or of one stream of a capture: what is put there runs in order, so all of it may use the
// same memory, one launch after another.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <jit/device_buffer.h>

namespace jit {

/// Memory of one use. It grows to the largest request; launches that were queued before keep what they were given.
class GrowingMemory {
 public:
  /// At least `bytes` on `device`, aligned to 256. Bytes of fresh memory are `first_byte`, or anything if that is negative.
  /// Throws Error driver_error when the device has no room.
  const DeviceBuffer& at_least(int device, std::size_t bytes, int first_byte);

  /// How many bytes a request may have without growth.
  std::size_t bytes() const { return buffers_.empty() ? 0 : buffers_.back()->size(); }

  /// All that was given away so far, the largest last.
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
