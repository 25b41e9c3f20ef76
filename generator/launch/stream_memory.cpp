#include "generator/launch/stream_memory.h"

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

Digest stream_key(int device, CUstream stream) {
  const unsigned long long id = stream_id(stream);
  const std::uint64_t spread = id * 0x9e3779b97f4a7c15u >> 16;
  return Digest{.high = id, .low = spread + static_cast<std::uint64_t>(device)};
}

}  // namespace

std::shared_ptr<MemoryLane> StreamMemory::lane(int device, CUstream stream) const {
  if (is_capturing(stream)) return of_graphs_.lane(stream);
  const Digest key = stream_key(device, stream);
  if (const Lane* known = of_streams_.find(key)) return *known;
  of_graphs_.free_unused();
  return *of_streams_.insert(key, std::make_unique<const Lane>(std::make_shared<MemoryLane>()));
}

MemoryLane& StreamLease::lane() {
  if (lane_ == nullptr) {
    lane_ = memory_.lane(device_, stream_);
    in_use_ = std::unique_lock(lane_->in_use);
  }
  return *lane_;
}

int* StreamLease::counters(int count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(int);
  return static_cast<int*>(lane().counters.at_least(device_, bytes, 0).data());
}

void* StreamLease::workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  GrowingMemory& own = lane().workspaces;
  if (own.bytes() < bytes) memory_.free_unused();
  return own.at_least(device_, bytes, -1).data();
}

void* StreamLease::mailbox(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return lane().mailboxes.at_least(device_, bytes, mailbox_byte).data();
}

std::span<std::byte> StreamLease::numbered(std::size_t bytes) {
  const DeviceBuffer& buffer = lane().numbered.at_least(device_, bytes, mailbox_byte);
  return {static_cast<std::byte*>(buffer.data()), buffer.size()};
}

void StreamLease::reset() {
  if (lane_ == nullptr || is_capturing(stream_)) return;  // a failed capture has its own memory
  const auto refill = [this](const GrowingMemory& memory, unsigned char byte) {
    for (const auto& buffer : memory.all())
      driver().cuMemsetD8Async(buffer->address(), byte, buffer->size(), stream_);
  };
  refill(lane_->counters, 0);
  refill(lane_->mailboxes, mailbox_byte);
  refill(lane_->numbered, mailbox_byte);
}

}  // namespace jit
