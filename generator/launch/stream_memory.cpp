#include "generator/launch/stream_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// `part` tells one kind of a stream's memory from another.
Digest stream_key(int device, unsigned long long id, int part) {
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

// The id of a stream is never given again, unlike its handle (CUDA driver API, "cuStreamGetId").
const MemoryOfStream::Identity& MemoryOfStream::identity() {
  if (identity_) return *identity_;
  Identity found{.is_capturing = is_capturing(stream_)};
  if (!found.is_capturing) check(driver().cuStreamGetId(stream_, &found.id), "cuStreamGetId");
  return identity_.emplace(found);
}

int* MemoryOfStream::counters(int count) {
  if (identity().is_capturing) return memory_.graph_counters(device_, count);
  const Digest key = stream_key(device_, identity().id, 0);
  const DeviceBuffer* buffer = memory_.counters_.find(key);
  if (buffer == nullptr) {
    const RelaxedCapture relaxed;
    auto fresh = std::make_unique<DeviceBuffer>(device_, counters_bytes);
    fresh->fill(0, stream_);
    buffer = memory_.counters_.insert(key, std::move(fresh));
  }
  return static_cast<int*>(buffer->data());
}

void MemoryOfStream::reset_counter() {
  if (identity().is_capturing) return;  // what failed had a counter of its own
  const RelaxedCapture relaxed;
  if (const DeviceBuffer* buffer = memory_.counters_.find(stream_key(device_, identity().id, 0)))
    driver().cuMemsetD32Async(buffer->address(), 0, StreamMemory::max_counters, stream_);
}

void* MemoryOfStream::workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = std::bit_ceil(std::max(bytes, smallest_workspace));
  const bool is_own = !identity().is_capturing;
  const Digest key = stream_key(device_, identity().id, std::countr_zero(size));
  if (const DeviceBuffer* known = is_own ? memory_.workspaces_.find(key) : nullptr) return known->data();
  const RelaxedCapture relaxed;
  auto fresh = std::make_unique<const DeviceBuffer>(device_, size);
  if (is_own) return memory_.workspaces_.insert(key, std::move(fresh))->data();
  const std::lock_guard lock(memory_.mutex_);
  return memory_.of_graphs_.emplace_back(std::move(fresh))->data();
}

}  // namespace jit
