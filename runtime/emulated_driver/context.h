// Contexts: the primary one of each device, and which is current on a thread.
#pragma once

#include <memory>
#include <shared_mutex>

#include <cuda.h>

namespace jit::emulated_driver {

struct Device;
struct Stream;

struct Context {
  explicit Context(Device& device);

  Device& device;
  /// Held exclusively by work of the legacy default stream, shared by that of streams which wait for it.
  std::shared_mutex legacy_order;
  const std::shared_ptr<Stream> legacy_stream;
};

/// Fails with CUDA_ERROR_INVALID_CONTEXT when none is current.
Context& current_context();
/// The same as a handle; null when none is current.
CUcontext current_context_handle();

}  // namespace jit::emulated_driver
