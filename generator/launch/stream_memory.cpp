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
Digest stream_key(int device, CUstream stream, int part) {
  unsigned long long id = 0;
  check(driver().cuStreamGetId(stream, &id), "cuStreamGetId");
  const std::uint64_t spread = id * 0x9e3779b97f4a7c15u >> 16;
  return Digest{
      .high = id,
      .low = spread + (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(device)};
}

constexpr std::size_t smallest_workspace = 4096;

// Counters that may count at the same time lie in sectors of their own.
constexpr std::size_t counter_sector_bytes = 32;
constexpr std::size_t counters_bytes = StreamMemory::max_counters * sizeof(int);

// Zeros that are there when this returns, though some stream is being captured.
std::unique_ptr<const DeviceBuffer> make_zeros(int device, std::size_t bytes) {
  const RelaxedCapture relaxed;
  auto zeros = std::make_unique<DeviceBuffer>(device, bytes);
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const std::unique_ptr<CUstream_st, CUresult (*)(CUstream)> guard(stream, driver().cuStreamDestroy);
  zeros->fill(0, stream);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return zeros;
}

}  // namespace

int* StreamMemory::graph_counters(int device, int count) const {
  const std::size_t sectors =
      (static_cast<std::size_t>(count) * sizeof(int) + counter_sector_bytes - 1) / counter_sector_bytes;
  const std::size_t bytes = sectors * counter_sector_bytes;
  const std::lock_guard lock(mutex_);
  GraphCounters& counters = graph_counters_[device];
  if (counters.memory == nullptr || counters.used_bytes + bytes > counters.memory->size())
    counters = {of_graphs_.emplace_back(make_zeros(device, counters_bytes)).get(), 0};
  int* first = static_cast<int*>(counters.memory->data()) + counters.used_bytes / sizeof(int);
  counters.used_bytes += bytes;
  return first;
}

int* StreamMemory::counters(int device, CUstream stream, int count) const {
  if (is_capturing(stream)) return graph_counters(device, count);
  const Digest key = stream_key(device, stream, 0);
  const DeviceBuffer* buffer = counters_.find(key);
  if (buffer == nullptr) {
    const RelaxedCapture relaxed;
    auto fresh = std::make_unique<DeviceBuffer>(device, counters_bytes);
    fresh->fill(0, stream);
    buffer = counters_.insert(key, std::move(fresh));
  }
  return static_cast<int*>(buffer->data());
}

void StreamMemory::reset_counter(int device, CUstream stream) const {
  if (is_capturing(stream)) return;  // what failed had a counter of its own
  const RelaxedCapture relaxed;
  if (const DeviceBuffer* buffer = counters_.find(stream_key(device, stream, 0)))
    driver().cuMemsetD32Async(buffer->address(), 0, max_counters, stream);
}

void* StreamMemory::workspace(int device, CUstream stream, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest_workspace));
  std::optional<Digest> key;
  if (!is_capturing(stream)) key = stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = key ? workspaces_.find(*key) : nullptr) return known->data();
  const RelaxedCapture relaxed;
  auto fresh = std::make_unique<const DeviceBuffer>(device, size);
  if (key) return workspaces_.insert(*key, std::move(fresh))->data();
  const std::lock_guard lock(mutex_);
  return of_graphs_.emplace_back(std::move(fresh))->data();
}

}  // namespace jit
