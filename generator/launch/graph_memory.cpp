#include "generator/launch/graph_memory.h"

#include <utility>

#include "generator/launch/memory_sizes.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

// Counters that may count at the same time lie in sectors of their own.
constexpr std::size_t sector_bytes = 32;

std::size_t in_sectors(int count) {
  return (static_cast<std::size_t>(count) * sizeof(int) + sector_bytes - 1) / sector_bytes * sector_bytes;
}

}  // namespace

GraphMemory::Lane& GraphMemory::lane(CUstream stream) {
  const StreamCapture capture = capture_of(stream);
  const auto known = captures_.find(capture.id);
  if (known != captures_.end()) return known->second.lanes[stream];
  std::erase_if(captures_, [](const auto& other) { return other.second.is_gone->load(); });
  Capture fresh{.is_gone = gone_flag(capture.graph), .lanes = {}};
  return captures_.emplace(capture.id, std::move(fresh)).first->second.lanes[stream];
}

int* GraphMemory::take_counters(int device, int count) {
  const std::size_t bytes = in_sectors(count);
  std::vector<Counters>& all = counters_[device];
  if (all.empty() || all.back().used_bytes + bytes > all.back().memory->size())
    all.push_back({.memory = make_filled(device, counters_bytes, 0)});
  Counters& counters = all.back();
  int* const first = static_cast<int*>(counters.memory->data()) + counters.used_bytes / sizeof(int);
  counters.used_bytes += bytes;
  return first;
}

int* GraphMemory::counters(int device, CUstream stream, int count) {
  const std::lock_guard lock(mutex_);
  Lane& own = lane(stream);
  if (own.counter_count < count) {
    own.counters = take_counters(device, count);
    own.counter_count = count;
  }
  return own.counters;
}

void* GraphMemory::workspace(int device, CUstream stream, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Sizes& sizes = lane(stream).workspaces;
  if (sizes.empty() || sizes.back()->size() < bytes)
    sizes.push_back(std::make_unique<const DeviceBuffer>(device, rounded_up(bytes)));
  return sizes.back()->data();
}

void* GraphMemory::mailbox(int device, CUstream stream, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return filled(lane(stream).mailboxes, device, bytes).data();
}

std::span<std::byte> GraphMemory::numbered(int device, CUstream stream, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const DeviceBuffer& buffer = filled(lane(stream).numbered, device, bytes);
  return {static_cast<std::byte*>(buffer.data()), buffer.size()};
}

const DeviceBuffer& GraphMemory::filled(Sizes& sizes, int device, std::size_t bytes) {
  if (sizes.empty() || sizes.back()->size() < bytes)
    sizes.push_back(make_filled(device, rounded_up(bytes), mailbox_byte));
  return *sizes.back();
}

void GraphMemory::free_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [](const auto& capture) { return capture.second.is_gone->load(); });
}

}  // namespace jit
