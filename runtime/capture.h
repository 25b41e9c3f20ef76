// CUDA graph capture: asking whether a stream is being captured and into what, and doing what a capture elsewhere must
// not break.
#pragma once

#include <atomic>
#include <memory>

#include <cuda.h>

namespace jit {

/// True when work put on `stream` would be captured, or would spoil a capture that another stream began.
bool is_capturing(CUstream stream);

/// A capture that takes the work of a stream.
struct StreamCapture {
  cuuint64_t id = 0;        ///< of no other capture of the process
  CUgraph graph = nullptr;  ///< that the work goes into
};

/// Requires: is_capturing(stream). Throws Error driver_error where work put on the stream would fail: the capture is
/// invalid, or another stream's.
StreamCapture capture_of(CUstream stream);

/// A flag that is set when the graph and all that was instantiated from it are destroyed, and no run of them is under way
/// (CUDA programming guide, "CUDA User Objects"): in any thread. Never set where the driver cannot tell.
std::shared_ptr<const std::atomic<bool>> gone_flag(CUgraph graph);

/// Until the end of the scope this thread may allocate and load code although some stream is being captured.
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
