// Device memory that kernels need beside the tensors of a call. It has one owner, the context, and belongs to
// a stream: kernels on one stream use it one after another.
//
// Under graph capture nothing of a stream's own is given away, because a graph runs whenever it is launched, also beside
// the stream that it was captured from: each capture has memory of its own (graph_memory.h).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include <cuda.h>

#include <jit/device_buffer.h>

#include "cache/dispatch_table.h"
#include "generator/launch/graph_memory.h"
#include "generator/launch/memory_sizes.h"
#include "templates/base/array_fault.cuh"

namespace jit {

/// Thread safe. Once a stream has its memory, asking for it again takes no lock and allocates nothing.
class StreamMemory {
 public:
  /// The counter from which the blocks of a persistent grid on `stream` of `device`, the current one, take
  /// their work: allocated and set to 0 at the stream's first launch. Each kernel leaves it at 0; one that may
  /// start before the other has ended waits for that first (griddepcontrol_wait). Throws Error driver_error when
  /// the device has no room.
  int* counter(int device, CUstream stream) const { return counters(device, stream, 1); }

  /// `count` such counters, of which the first is `counter`'s own: all of them are 0 between kernels. Requires:
  /// count <= max_counters.
  int* counters(int device, CUstream stream, int count) const;
  static constexpr int max_counters = max_stream_counters;

  /// Sets counters, mailboxes and numbered memory of the stream back after a launch that failed, on a device that is
  /// still usable: an emulated one.
  void reset(int device, CUstream stream) const;

  /// Where checked kernels on `device` note what is wrong: all 0 at first. One for all streams and graphs. Throws Error
  /// driver_error when the device has no room.
  ArrayFault* fault(int device) const;

  /// Waits for `stream`, and returns what checked kernels have noted on `device` since the last time; nothing while the
  /// stream is being captured.
  std::optional<ArrayFault> take_fault(int device, CUstream stream) const;

  /// At least `bytes` of memory, aligned to 256, with any contents, for what is put on `stream` next; null for
  /// 0 bytes. Sizes are rounded up to powers of two, and each is allocated once for a stream; of a captured
  /// stream, those that exceed all before. Throws Error driver_error when the device has no room.
  void* workspace(int device, CUstream stream, std::size_t bytes) const;

  /// The same, but all bits of it are 1 between kernels: each leaves it so, as the counter at 0.
  void* mailbox(int device, CUstream stream, std::size_t bytes) const;

  /// At least `bytes` of memory of which all bits are 1 at first, and which is left to kernels that number their launches:
  /// they leave in it what they like, and know by the numbers what is of an earlier launch. Sizes are as above.
  std::span<std::byte> numbered(int device, CUstream stream, std::size_t bytes) const;

 private:
  const DeviceBuffer& filled(DispatchTable<DeviceBuffer>& all, int device, CUstream stream,
                             std::size_t bytes) const;

  mutable DispatchTable<DeviceBuffer> counters_;    ///< by stream
  mutable DispatchTable<DeviceBuffer> workspaces_;  ///< by stream and size
  mutable DispatchTable<DeviceBuffer> mailboxes_;   ///< the same
  mutable DispatchTable<DeviceBuffer> numbered_;    ///< the same
  mutable GraphMemory of_graphs_;
  mutable std::mutex mutex_;                                           ///< of the following
  mutable std::map<int, std::unique_ptr<const DeviceBuffer>> faults_;  ///< by device
};

}  // namespace jit
