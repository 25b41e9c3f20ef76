#include "runtime/capture.h"

#include "runtime/driver_api.h"

namespace jit {

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(stream, &status);
  // What the driver answers for the default stream while another stream is being captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

RelaxedCapture::RelaxedCapture() {
  check(driver().cuThreadExchangeStreamCaptureMode(&previous_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&previous_); }

}  // namespace jit
