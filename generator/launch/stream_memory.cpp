#include "generator/launch/stream_memory.h"

#include <algorithm>
#include <bit>
#include <limits>
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
constexpr unsigned char mailbox_byte = 0xff;

// Counters that may count at the same time lie in sectors of their own.
constexpr std::size_t counter_sector_bytes = 32;
constexpr std::size_t counters_bytes = StreamMemory::max_counters * sizeof(int);

std::size_t rounded_up(std::size_t bytes) { return std::bit_ceil(std::max(bytes, smallest_workspace)); }

// Bytes that are `value` when this returns, though some stream is being captured.
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

}  // namespace

int* StreamMemory::graph_counters(int device, int count) const {
  const std::size_t sectors =
      (static_cast<std::size_t>(count) * sizeof(int) + counter_sector_bytes - 1) / counter_sector_bytes;
  const std::size_t bytes = sectors * counter_sector_bytes;
  const std::lock_guard lock(mutex_);
  GraphCounters& counters = graph_counters_[device];
  if (counters.memory == nullptr || counters.used_bytes + bytes > counters.memory->size())
    counters = {of_graphs_.emplace_back(make_filled(device, counters_bytes, 0)).get(), 0};
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

void StreamMemory::reset(int device, CUstream stream) const {
  if (is_capturing(stream)) return;  // what failed had memory of its own
  const RelaxedCapture relaxed;
  const auto refill = [stream](const DeviceBuffer* buffer, int byte) {
    if (buffer != nullptr)
      driver().cuMemsetD8Async(buffer->address(), static_cast<unsigned char>(byte), buffer->size(), stream);
  };
  refill(counters_.find(stream_key(device, stream, 0)), 0);
  for (int size = 0; size < std::numeric_limits<std::size_t>::digits; ++size)
    refill(mailboxes_.find(stream_key(device, stream, size)), mailbox_byte);
}

void* StreamMemory::of_graph(std::unique_ptr<const DeviceBuffer> memory) const {
  const std::lock_guard lock(mutex_);
  return of_graphs_.emplace_back(std::move(memory))->data();
}

ArrayFault* StreamMemory::fault(int device) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const DeviceBuffer>& buffer = faults_[device];
  if (buffer == nullptr) buffer = make_filled(device, sizeof(ArrayFault), 0);
  return static_cast<ArrayFault*>(buffer->data());
}

std::optional<ArrayFault> StreamMemory::take_fault(int device, CUstream stream) const {
  if (is_capturing(stream)) return std::nullopt;
  ArrayFault noted{};
  const auto address = reinterpret_cast<CUdeviceptr>(fault(device));
  check(driver().cuMemcpyDtoHAsync(&noted, address, sizeof(noted), stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (noted.array == SequenceArrayId::none) return std::nullopt;
  check(driver().cuMemsetD32Async(address, 0, sizeof(noted) / sizeof(int), stream), "cuMemsetD32Async");
  return noted;
}

void* StreamMemory::workspace(int device, CUstream stream, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::size_t size = rounded_up(bytes);
  if (is_capturing(stream)) {
    const RelaxedCapture relaxed;
    return of_graph(std::make_unique<const DeviceBuffer>(device, size));
  }
  const Digest key = stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = workspaces_.find(key)) return known->data();
  const RelaxedCapture relaxed;
  return workspaces_.insert(key, std::make_unique<const DeviceBuffer>(device, size))->data();
}

void* StreamMemory::mailbox(int device, CUstream stream, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  const std::size_t size = rounded_up(bytes);
  if (is_capturing(stream)) return of_graph(make_filled(device, size, mailbox_byte));
  const Digest key = stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = mailboxes_.find(key)) return known->data();
  const RelaxedCapture relaxed;
  auto fresh = std::make_unique<DeviceBuffer>(device, size);
  fresh->fill(mailbox_byte, stream);
  return mailboxes_.insert(key, std::move(fresh))->data();
}

}  // namespace jit
