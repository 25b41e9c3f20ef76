// CUDA graph capture: asking whether a stream is being captured, and doing what a capture elsewhere must not
// break.
#pragma once

#include <cuda.h>

namespace jit {

/// True when work put on `stream` would be captured, or would spoil a capture that another stream began.
bool is_capturing(CUstream stream);

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
