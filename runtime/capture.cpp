#include "runtime/capture.h"

#include "runtime/driver_api.h"

namespace jit {

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(stream, &status);
  // The driver's answer for the default stream while another stream is being captured.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  check(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

StreamCapture capture_of(CUstream stream) {
  StreamCapture capture;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(driver().cuStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph, nullptr, nullptr),
        "cuStreamGetCaptureInfo");
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    check(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamGetCaptureInfo");
  return capture;
}

std::shared_ptr<const std::atomic<bool>> gone_flag(CUgraph graph) {
  using Flag = std::shared_ptr<std::atomic<bool>>;
  // Only sets the flag: this callback may not call the driver, which may hold any lock.
  const CUhostFn set = [](void* data) {
    const std::unique_ptr<Flag> flag(static_cast<Flag*>(data));
    **flag = true;
  };
  auto flag = std::make_unique<Flag>(std::make_shared<std::atomic<bool>>(false));
  const Flag told = *flag;
  CUuserObject object = nullptr;
  check(driver().cuUserObjectCreate(&object, flag.get(), set, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        "cuUserObjectCreate");
  static_cast<void>(flag.release());
  if (driver().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS)
    return told;
  driver().cuUserObjectRelease(object, 1);  // releasing sets the flag although the graph still exists
  return std::make_shared<const std::atomic<bool>>(false);
}

RelaxedCapture::RelaxedCapture() {
  check(driver().cuThreadExchangeStreamCaptureMode(&previous_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&previous_); }

}  // namespace jit
