// Copies of CPU buffers in an emulated device's memory.
#pragma once

#include <vector>

#include <jit/device_buffer.h>

#include "xla/arguments.h"

namespace jit::xla {

/// Copies of the buffers of a call.
class Staged {
 public:
  Staged(int device, const CallBuffers& host);

  /// The buffers on the device.
  const CallBuffers& buffers() const { return buffers_; }
  /// Copies the results back. The work on the device must be done.
  void download() const;

 private:
  std::vector<DeviceBuffer> memory_;
  CallBuffers buffers_;
  std::vector<void*> results_;  ///< host addresses
};

}  // namespace jit::xla
