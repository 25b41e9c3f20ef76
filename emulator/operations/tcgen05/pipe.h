// Asynchronous tcgen05 operations of a block, or of a pair that it leads, from issue to completion. They take
// effect in issue order, as late as possible: when a commit's arrival is due.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "machine/memory_access.h"
#include "operations/barriers/mbarrier.h"
#include "operations/copies/bulk.h"

namespace jit::emulator {

/// A product, or a copy to tensor memory, that was issued.
class TensorOperation {
 public:
  virtual ~TensorOperation() = default;
  /// `is_idle`: all earlier operations had already completed.
  virtual void complete(bool is_idle) = 0;
};

class TensorPipe {
 public:
  explicit TensorPipe(Block& block) : block_(block) {}

  int cta_group = 0;  ///< cta_group of the block's instructions so far; 0: none

  void issue(std::unique_ptr<TensorOperation> operation);
  /// Arrives at each of `mbarriers` when all operations issued by the thread have completed.
  void commit(const Issue& issue, Agent agent, std::uint32_t time,
              std::vector<std::pair<Block*, Mbarrier*>> mbarriers);
  /// Completes the operations before the oldest commit, and its arrival.
  void reach_commit();
  /// Reports operations that no commit covers when the block ends.
  void finish(Warp& warp);

 private:
  Block& block_;
  std::deque<std::unique_ptr<TensorOperation>> queue_;
  std::deque<std::size_t> commits_;  // positions of commits, counted from the first operation ever issued
  std::size_t done_ = 0, issued_ = 0;
};

}  // namespace jit::emulator
