// Device memory that kernels need beside the tensors of a call. It has one owner, the context, and belongs to
// a stream: kernels on one stream use it one after another.
//
// Under graph capture nothing of a stream's own is given away, because a graph runs whenever it is launched,
// also beside the stream that it was captured from: each captured launch has a counter and a workspace of its
// own, which live as long as the owner. Runs of one captured launch must follow one another.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <cuda.h>

#include <jit/device_buffer.h>

#include "cache/dispatch_table.h"

namespace jit {

class MemoryOfStream;

/// Thread safe. Once a stream has its memory, asking for it again takes no lock and allocates nothing.
class StreamMemory {
 public:
  static constexpr int max_counters = 4096;

  /// What `stream` of `device`, the current one, has here, for one call.
  MemoryOfStream of(int device, CUstream stream) const;

 private:
  friend class MemoryOfStream;

  /// Counters of captured launches, side by side, of which some are given away.
  struct GraphCounters {
    const DeviceBuffer* memory = nullptr;
    std::size_t used_bytes = 0;
  };

  int* graph_counters(int device, int count) const;

  mutable DispatchTable<DeviceBuffer> counters_;         ///< by stream
  mutable DispatchTable<DeviceBuffer> workspaces_;       ///< by stream and size
  mutable std::mutex mutex_;                             ///< of the following
  mutable std::map<int, GraphCounters> graph_counters_;  ///< by device
  mutable std::vector<std::unique_ptr<const DeviceBuffer>> of_graphs_;
};

/// The memory of one stream during one call, in which its capture neither begins nor ends: the driver is asked which
/// stream it is once, and only if the call needs memory. Belongs to the thread that calls.
class MemoryOfStream {
 public:
  MemoryOfStream(const StreamMemory& memory, int device, CUstream stream)
      : memory_(memory), device_(device), stream_(stream) {}

  /// The counter from which the blocks of a persistent grid take their work: allocated and set to 0 at the stream's
  /// first launch. Each kernel leaves it at 0; one that may start before the other has ended waits for that first
  /// (griddepcontrol_wait). While the stream is being captured, another one at each call. Throws Error driver_error
  /// when the device has no room.
  int* counter() { return counters(1); }

  /// `count` such counters, of which the first is `counter`'s own: all of them are 0 between kernels. Requires:
  /// count <= StreamMemory::max_counters.
  int* counters(int count);

  /// After a launch that failed, on a device that is still usable: an emulated one.
  void reset_counter();

  /// At least `bytes` of memory, aligned to 256, with any contents, for what is put on the stream next; null for
  /// 0 bytes. Sizes are rounded up to powers of two, and each is allocated once for a stream. Throws Error
  /// driver_error when the device has no room.
  void* workspace(std::size_t bytes);

 private:
  /// Of a stream that is being captured nothing is known that would outlast the capture.
  struct Identity {
    bool is_capturing = false;
    unsigned long long id = 0;
  };
  const Identity& identity();

  const StreamMemory& memory_;
  int device_;
  CUstream stream_;
  std::optional<Identity> identity_;
};

inline MemoryOfStream StreamMemory::of(int device, CUstream stream) const { return {*this, device, stream}; }

}  // namespace jit
