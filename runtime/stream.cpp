#include <jit/stream.h>

#include "runtime/driver_api.h"

namespace jit {

void synchronize(Stream stream) { check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize"); }

void wait_for(Stream stream, Stream other) {
  if (stream == other) return;
  const DriverApi& api = driver();
  CUevent event = nullptr;
  check(api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const CUresult recorded = api.cuEventRecord(event, other);
  const CUresult waited = recorded == CUDA_SUCCESS ? api.cuStreamWaitEvent(stream, event, 0) : recorded;
  api.cuEventDestroy(event);
  check(waited, "cuStreamWaitEvent");
}

}  // namespace jit
