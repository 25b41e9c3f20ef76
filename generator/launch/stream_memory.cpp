#include "generator/launch/stream_memory.h"

#include <bit>
#include <limits>
#include <utility>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// `part` tells one kind of a stream's memory from another.
Digest stream_key(int device, CUstream stream, int part) {
  const unsigned long long id = stream_id(stream);
  const std::uint64_t spread = id * 0x9e3779b97f4a7c15u >> 16;
  return Digest{
      .high = id,
      .low = spread + (static_cast<std::uint64_t>(part) << 32) + static_cast<std::uint64_t>(device)};
}

}  // namespace

int* StreamMemory::counters(int device, CUstream stream, int count) const {
  if (is_capturing(stream)) return of_graphs_.counters(device, stream, count);
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
  for (int size = 0; size < std::numeric_limits<std::size_t>::digits; ++size) {
    for (const DispatchTable<DeviceBuffer>* all : {&mailboxes_, &numbered_})
      refill(all->find(stream_key(device, stream, size)), mailbox_byte);
  }
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
  if (is_capturing(stream)) return of_graphs_.workspace(device, stream, bytes);
  const std::size_t size = rounded_up(bytes);
  const Digest key = stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = workspaces_.find(key)) return known->data();
  of_graphs_.free_unused();
  const RelaxedCapture relaxed;
  return workspaces_.insert(key, std::make_unique<const DeviceBuffer>(device, size))->data();
}

void* StreamMemory::mailbox(int device, CUstream stream, std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  if (is_capturing(stream)) return of_graphs_.mailbox(device, stream, bytes);
  return filled(mailboxes_, device, stream, bytes).data();
}

std::span<std::byte> StreamMemory::numbered(int device, CUstream stream, std::size_t bytes) const {
  if (is_capturing(stream)) return of_graphs_.numbered(device, stream, bytes);
  const DeviceBuffer& buffer = filled(numbered_, device, stream, bytes);
  return {static_cast<std::byte*>(buffer.data()), buffer.size()};
}

const DeviceBuffer& StreamMemory::filled(DispatchTable<DeviceBuffer>& all, int device, CUstream stream,
                                         std::size_t bytes) const {
  const std::size_t size = rounded_up(bytes);
  const Digest key = stream_key(device, stream, std::countr_zero(size));
  if (const DeviceBuffer* known = all.find(key)) return *known;
  const RelaxedCapture relaxed;
  auto fresh = std::make_unique<DeviceBuffer>(device, size);
  fresh->fill(mailbox_byte, stream);
  return *all.insert(key, std::move(fresh));
}

}  // namespace jit
