// Device memory that kernels need beside the tensors of a call. It has one owner, the context, and belongs to a stream:
// kernels on one stream use it one after another. A call that uses it leases it, because several kernels of a call may
// hand results to one another there, and another host thread could queue a launch between them.
//
// Under graph capture nothing of a stream's own is given away, because a graph runs whenever it is launched, also beside
// the stream that it was captured from: each capture has memory of its own (graph_memory.h).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include <cuda.h>

#include "cache/dispatch_table.h"
#include "generator/launch/fault_slot.h"
#include "generator/launch/graph_memory.h"
#include "generator/launch/memory_lane.h"
#include "generator/launch/memory_sizes.h"

namespace jit {

/// Where calls find the memory of their streams. Thread safe.
class StreamMemory {
 public:
  /// Memory of what is put on `stream` of `device`, the current one; made at the stream's first request. Once it is there, a
  /// stream that is not captured takes no lock for it. Throws Error driver_error when the stream takes no work.
  std::shared_ptr<MemoryLane> lane(int device, CUstream stream) const;

  /// Where checked kernels note what is wrong with an array.
  const FaultSlots& faults() const { return faults_; }

  /// Gives memory of graphs that are gone back to the device.
  void free_unused() const { of_graphs_.free_unused(); }

 private:
  using Lane = std::shared_ptr<MemoryLane>;

  mutable DispatchTable<Lane> of_streams_;
  mutable GraphMemory of_graphs_;
  FaultSlots faults_;
};

/// The use that one call makes of a stream's memory. The first request takes the memory: calls of other host threads that
/// want it wait from then on until the lease ends. It must end behind the call's last launch. A call that requests nothing
/// waits for no other thread. Used by one thread.
class StreamLease {
 public:
  /// For launches on `stream` of `device`, which is the current one at every request.
  StreamLease(const StreamMemory& memory, int device, CUstream stream)
      : memory_(memory), device_(device), stream_(stream) {}

  /// `count` counters, which are 0 between kernels: each leaves them so. One that may start before the kernel in front has
  /// ended waits for that first (griddepcontrol_wait). Requires: count <= max_counters. Like all requests it throws Error
  /// driver_error when the device has no room.
  int* counters(int count);
  static constexpr int max_counters = 4096;
  /// The counter from which the blocks of a persistent grid take their work: the first of `counters`.
  int* counter() { return counters(1); }

  /// At least `bytes` of memory, aligned to 256, with any contents; null for 0 bytes. A second request of a call may get
  /// the same memory.
  void* workspace(std::size_t bytes);

  /// At least `bytes` of memory whose bits are all 1 between kernels: each leaves it so.
  void* mailbox(std::size_t bytes);

  /// At least `bytes` of memory of which all bits are 1 at first, and which is left to kernels that number their launches:
  /// they leave in it what they like, and know by the numbers what is of an earlier launch.
  std::span<std::byte> numbered(std::size_t bytes);

  /// Sets counters, mailboxes and numbered memory back if the call has requested anything: after a launch that failed, on a
  /// device that is still usable, an emulated one.
  void reset();

 private:
  MemoryLane& lane();

  const StreamMemory& memory_;
  const int device_;
  const CUstream stream_;
  std::shared_ptr<MemoryLane> lane_;  ///< null before the first request; outlives the lock
  std::unique_lock<std::mutex> in_use_;
};

}  // namespace jit
