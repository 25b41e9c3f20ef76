// Counters in device memory from which the blocks of a persistent grid take their work.
#pragma once

#include <cuda.h>

#include <jit/device_buffer.h>

#include "cache/dispatch_table.h"

namespace jit {

/// One counter for each stream of each device: kernels on one stream use it one after another, and each
/// leaves it at 0. One that may start before the other has ended waits for that first (griddepcontrol_wait).
/// Counters live as long as their owner: four bytes for each stream that was launched on. Thread safe.
class WorkCounters {
 public:
  /// The counter for a launch on `stream` of `device`, the current one: allocated and set to 0 at the
  /// stream's first launch. Null while the stream is being captured, because graphs run at the same time as
  /// the stream that they were captured from; and when the driver cannot tell streams apart.
  int* counter(int device, CUstream stream) const;

  /// After a launch that failed, on a device that is still usable: an emulated one.
  void reset(int device, CUstream stream) const;

 private:
  mutable DispatchTable<DeviceBuffer> by_stream_;
};

}  // namespace jit
