#include "runtime/capture.h"

#include "runtime/driver_api.h"

namespace jit {

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(stream, &status);
  // The driver answers so for the default stream while another stream is being captured.
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
  // The driver forbids its own functions here, and holds what it likes: nothing but the flag is touched.
  const CUhostFn set = [](void* data) {
    const std::unique_ptr<Flag> flag(static_cast<Flag*>(data));
    **flag = true;
  };
  auto flag = std::make_unique<Flag>(std::make_shared<std::atomic<bool>>(false));
  const Flag told = *flag;
  CUuserObject object = nullptr;
  check(driver().cuUserObjectCreate(&object, flag.get(), set, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
        "cuUserObjectCreate");
  flag.release();
  if (driver().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS)
    return told;
  driver().cuUserObjectRelease(object, 1);  // sets the flag, though the graph is there
  return std::make_shared<const std::atomic<bool>>(false);
}

RelaxedCapture::RelaxedCapture() {
  check(driver().cuThreadExchangeStreamCaptureMode(&previous_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&previous_); }

}  // namespace jit
