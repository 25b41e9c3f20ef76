#include "machine/async_queue.h"

#include <utility>

#include "machine/random.h"

namespace jit::emulator {

bool AsyncQueue::complete_one(Random& random) {
  if (pending_.empty()) return false;
  const std::uint32_t index = random.below(static_cast<std::uint32_t>(pending_.size()));
  std::swap(pending_[index], pending_.back());
  // Removed first: its completion may push others.
  const std::unique_ptr<PendingOperation> operation = std::move(pending_.back());
  pending_.pop_back();
  operation->complete();
  return true;
}

}  // namespace jit::emulator
