#include "generator/launch/memory_sizes.h"

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {

unsigned long long stream_id(CUstream stream) {
  unsigned long long id = 0;
  check(driver().cuStreamGetId(stream, &id), "cuStreamGetId");
  return id;
}

std::unique_ptr<const DeviceBuffer> make_filled(int device, std::size_t bytes, unsigned char value) {
  const RelaxedCapture relaxed;
  auto memory = std::make_unique<DeviceBuffer>(device, bytes);
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const std::unique_ptr<CUstream_st, CUresult (*)(CUstream)> guard(stream, driver().cuStreamDestroy);
  memory->fill(value, stream);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return memory;
}

}  // namespace jit
