// Where checked kernels note what is wrong with an array on the device: a slot for each call, so that an error reaches the
// call that made it, whatever other threads do meanwhile.
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
  /// A slot that no call uses, with any contents. Throws Error driver_error when the device has no room.
  std::unique_ptr<const DeviceBuffer> take(int device) const;
  /// Takes back a slot that no kernel writes to any more.
  void give_back(int device, std::unique_ptr<const DeviceBuffer> slot) const;

  /// The slot that all graphs of a device share: replays have no call to tell. 0 at first. Throws the same.
  const DeviceBuffer& of_graphs(int device) const;
  /// Waits for `stream`; what graphs of the device have noted since somebody asked, which one caller alone gets. Throws
  /// Error driver_error.
  std::optional<ArrayFault> take_of_graphs(int device, CUstream stream) const;

 private:
  struct Slots {
    std::vector<std::unique_ptr<const DeviceBuffer>> free;
    std::unique_ptr<const DeviceBuffer> of_graphs;
  };

  mutable std::mutex taking_;  ///< held from reading what graphs have noted until it is cleared
  mutable std::mutex mutex_;
  mutable std::map<int, Slots> slots_;  ///< by device
};

/// The slot of one checked call on `stream` of `device`, the current one.
class FaultSlot {
 public:
  /// Clears the slot in the order of the stream. Throws Error driver_error.
  FaultSlot(const FaultSlots& slots, int device, CUstream stream);
  /// Waits for the stream unless `take` has, because kernels of the call may still write.
  ~FaultSlot();
  FaultSlot(const FaultSlot&) = delete;
  FaultSlot& operator=(const FaultSlot&) = delete;

  /// Where kernels of the call note faults; under capture the slot of graphs.
  ArrayFault* address() const;

  /// Waits for the stream; what kernels of the call have noted, else what graphs on the device have noted since somebody
  /// asked. Nothing while the stream is being captured. Throws Error driver_error.
  std::optional<ArrayFault> take();

 private:
  const FaultSlots& slots_;
  const int device_;
  const CUstream stream_;
  std::unique_ptr<const DeviceBuffer> own_;  ///< null under capture
  bool is_done_ = false;                     ///< no kernel writes any more
};

}  // namespace jit
