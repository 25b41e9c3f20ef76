// Device memory that kernels need in addition to the tensors of a call. The context owns it; each stream has
// its own, which its kernels share in stream order. A call leases it, because its kernels may exchange
// results there, and another host thread could queue a launch between them.
//
// Captured launches never use a stream's memory, because a graph may run concurrently with that stream: each
// capture has memory of its own (graph_memory.h).
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

/// The memory of all streams. Thread safe.
class StreamMemory {
 public:
  /// The memory of `stream` of `device`, which must be current; created at the stream's first request. Later
  /// requests take no lock unless the stream is being captured. Throws Error driver_error if the stream's
  /// capture is invalid.
  std::shared_ptr<MemoryLane> lane(int device, CUstream stream) const;

  /// Memory in which checked kernels record faults of arrays.
  const FaultSlots& faults() const { return faults_; }

  /// Frees the memory of destroyed graphs.
  void free_unused() const { of_graphs_.free_unused(); }

 private:
  using Lane = std::shared_ptr<MemoryLane>;

  mutable DispatchTable<Lane> of_streams_;
  mutable GraphMemory of_graphs_;
  FaultSlots faults_;
};

/// A call's use of its stream's memory. The first request locks the memory: calls of other host threads that
/// request it wait until the lease ends, which must be after the call's last launch. A call without requests
/// waits for nobody. For one thread.
class StreamLease {
 public:
  /// A lease for launches on `stream` of `device`, which must be current at every request.
  StreamLease(const StreamMemory& memory, int device, CUstream stream)
      : memory_(memory), device_(device), stream_(stream) {}

  /// `count` counters that are 0 between kernels: each kernel resets them. A kernel that may start before the
  /// previous one has ended must first wait for it (griddepcontrol_wait). Requires: count <= max_counters.
  /// All requests throw Error driver_error if the device has no memory.
  int* counters(int count);
  static constexpr int max_counters = 4096;
  /// The work counter of a persistent grid's scheduler: the first of `counters`.
  int* counter() { return counters(1); }

  /// At least `bytes` of memory, aligned to 256, with arbitrary contents; null for 0 bytes. A call's later
  /// requests may return the same memory.
  void* workspace(std::size_t bytes);

  /// At least `bytes` of memory whose bits are all 1 between kernels: each kernel restores that.
  void* mailbox(std::size_t bytes);

  /// At least `bytes` of memory, initially all bits 1, for kernels that number their launches: they may leave
  /// any data, and recognize older launches' data by its number.
  std::span<std::byte> numbered(std::size_t bytes);

  /// Resets counters, mailboxes and numbered memory if the call has requested any: after a failed launch on a
  /// device that is still usable, such as an emulated one.
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
