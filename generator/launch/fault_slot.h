// Memory in which checked kernels record a fault of an array on the device: one slot per call, so that the
// error reaches the right call while other threads run theirs.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <cuda.h>

#include <jit/device_buffer.h>

#include "templates/base/params.cuh"

namespace jit {

/// The slots of a context. Thread safe.
class FaultSlots {
 public:
  /// An unused slot with any contents. Throws Error driver_error if the device has no memory.
  std::unique_ptr<const DeviceBuffer> take(int device) const;
  /// Returns a slot that no kernel writes to anymore.
  void give_back(int device, std::unique_ptr<const DeviceBuffer> slot) const;

  /// The slot that all graphs of a device share: replays have no call. Initially 0. Throws likewise.
  const DeviceBuffer& of_graphs(int device) const;
  /// Waits for `stream`, then returns faults that graphs of the device have recorded since the last query;
  /// only one caller gets them. Throws Error driver_error.
  std::optional<ArrayFault> take_of_graphs(int device, CUstream stream) const;

 private:
  struct Slots {
    std::vector<std::unique_ptr<const DeviceBuffer>> free;
    std::unique_ptr<const DeviceBuffer> of_graphs;
  };

  mutable std::mutex taking_;  ///< held from reading the faults of graphs until they are cleared
  mutable std::mutex mutex_;
  mutable std::map<int, Slots> slots_;  ///< by device
};

/// The slot of a checked call on `stream` of `device`, which must be current.
class FaultSlot {
 public:
  /// Clears the slot in stream order. Throws Error driver_error.
  FaultSlot(const FaultSlots& slots, int device, CUstream stream);
  /// Waits for the stream unless `take` has, because kernels of the call may still write to the slot.
  ~FaultSlot();
  FaultSlot(const FaultSlot&) = delete;
  FaultSlot& operator=(const FaultSlot&) = delete;

  /// The slot's address for kernels of the call; during stream capture that of graphs.
  ArrayFault* address() const;

  /// Waits for the stream, then returns the fault that kernels of the call have recorded, else that of graphs
  /// on the device since the last query. Nothing during stream capture. Throws Error driver_error.
  std::optional<ArrayFault> take();

 private:
  const FaultSlots& slots_;
  const int device_;
  const CUstream stream_;
  std::unique_ptr<const DeviceBuffer> own_;  ///< null under capture
  bool is_done_ = false;                     ///< no kernel writes any more
};

}  // namespace jit
