#include "generator/launch/graph_memory.h"

#include <utility>

#include "runtime/capture.h"

namespace jit {

std::shared_ptr<MemoryLane> GraphMemory::lane(CUstream stream) {
  const StreamCapture capture = capture_of(stream);
  const std::lock_guard lock(mutex_);
  auto known = captures_.find(capture.id);
  if (known == captures_.end()) {
    std::erase_if(captures_, [](const auto& other) { return other.second.is_gone->load(); });
    Capture fresh{.is_gone = gone_flag(capture.graph), .lanes = {}};
    known = captures_.emplace(capture.id, std::move(fresh)).first;
  }
  std::shared_ptr<MemoryLane>& lane = known->second.lanes[stream];
  if (lane == nullptr) lane = std::make_shared<MemoryLane>();
  return lane;
}

void GraphMemory::free_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [](const auto& capture) { return capture.second.is_gone->load(); });
}

}  // namespace jit
