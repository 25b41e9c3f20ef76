#include "generator/launch/work_counters.h"

#include <memory>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// The id of a stream is never given again, unlike its handle (CUDA driver API, "cuStreamGetId").
Digest stream_key(int device, unsigned long long id) {
  return {.high = id, .low = (id * 0x9e3779b97f4a7c15u >> 16) + static_cast<std::uint64_t>(device)};
}

}  // namespace

int* WorkCounters::counter(int device, CUstream stream) const {
  unsigned long long id = 0;
  if (is_capturing(stream) || driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return nullptr;
  const Digest key = stream_key(device, id);
  const DeviceBuffer* buffer = by_stream_.find(key);
  if (buffer == nullptr) {
    const RelaxedCapture relaxed;
    auto fresh = std::make_unique<DeviceBuffer>(device, sizeof(int));
    fresh->fill(0, stream);
    buffer = by_stream_.insert(key, std::move(fresh));
  }
  return static_cast<int*>(buffer->data());
}

void WorkCounters::reset(int device, CUstream stream) const {
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return;
  const RelaxedCapture relaxed;
  if (const DeviceBuffer* buffer = by_stream_.find(stream_key(device, id)))
    driver().cuMemsetD32(buffer->address(), 0, 1);
}

}  // namespace jit
