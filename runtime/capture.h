// CUDA graph capture: queries whether a stream is being captured and into which graph, and relaxes the
// restrictions of captures on other streams.
#pragma once

#include <atomic>
#include <memory>

#include <cuda.h>

namespace jit {

/// Whether work on `stream` would be captured, or would invalidate a capture of another stream.
bool is_capturing(CUstream stream);

/// The capture of a stream's work.
struct StreamCapture {
  cuuint64_t id = 0;        ///< unique in the process
  CUgraph graph = nullptr;  ///< gets the captured work
};

/// The capture of `stream`. Requires: is_capturing(stream). Throws Error driver_error if work on the stream
/// would fail: the capture is invalid, or belongs to another stream.
StreamCapture capture_of(CUstream stream);

/// A flag that is set once the graph and all its instantiations are destroyed and none is running (CUDA
/// programming guide, "CUDA User Objects"), by any thread. Never set if the driver does not support user
/// objects.
std::shared_ptr<const std::atomic<bool>> gone_flag(CUgraph graph);

/// Lets this thread allocate memory and load code in its scope even while some stream is captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode previous_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace jit
