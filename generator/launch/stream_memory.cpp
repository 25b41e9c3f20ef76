#include "generator/launch/stream_memory.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// The id of a stream is never given again, unlike its handle (CUDA driver API, "cuStreamGetId"). `part` tells
// one kind of a stream's memory from another.
std::optional<Digest> stream_key(int device, CUstream stream, int part) {
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return std::nullopt;
  const std::uint64_t spread = id * 0x9e3779b97f4a7c15u >> 16;
  return Digest{
      .high = id,
      .low = spread + (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(device)};
}

constexpr std::size_t smallest_workspace = 4096;

}  // namespace

int* StreamMemory::counter(int device, CUstream stream) const {
  if (is_capturing(stream)) return nullptr;
  const std::optional<Digest> key = stream_key(device, stream, 0);
  if (!key) return nullptr;
  const DeviceBuffer* buffer = counters_.find(*key);
  if (buffer == nullptr) {
    const RelaxedCapture relaxed;
    auto fresh = std::make_unique<DeviceBuffer>(device, sizeof(int));
    fresh->fill(0, stream);
    buffer = counters_.insert(*key, std::move(fresh));
  }
  return static_cast<int*>(buffer->data());
}

void StreamMemory::reset_counter(int device, CUstream stream) const {
  const std::optional<Digest> key = stream_key(device, stream, 0);
  const RelaxedCapture relaxed;
  if (const DeviceBuffer* buffer = key ? counters_.find(*key) : nullptr)
    driver().cuMemsetD32(buffer->address(), 0, 1);
}

void* StreamMemory::workspace(int device, CUstream stream, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest_workspace));
  const std::optional<Digest> key =
      is_capturing(stream) ? std::nullopt : stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = key ? workspaces_.find(*key) : nullptr) return known->data();
  const RelaxedCapture relaxed;
  auto fresh = std::make_unique<const DeviceBuffer>(device, size);
  if (key) return workspaces_.insert(*key, std::move(fresh))->data();
  const std::lock_guard lock(mutex_);
  return of_graphs_.emplace_back(std::move(fresh))->data();
}

}  // namespace jit
