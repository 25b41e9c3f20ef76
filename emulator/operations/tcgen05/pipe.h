// The asynchronous tcgen05 operations of a block, or of a pair whose leader it is, from issue to completion. They take
// effect in the order of their issue, as late as can be: when an arrival that a commit promised must come.
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
  /// `is_idle`: nothing in front of it had been left to do.
  virtual void complete(bool is_idle) = 0;
};

class TensorPipe {
 public:
  explicit TensorPipe(Block& block) : block_(block) {}

  int cta_group = 0;  ///< of the block's instructions so far; 0: none

  void issue(std::unique_ptr<TensorOperation> operation);
  /// An arrival at each of `mbarriers` when all operations that the thread has issued are complete.
  void commit(const Issue& issue, Agent agent, std::uint32_t time,
              std::vector<std::pair<Block*, Mbarrier*>> mbarriers);
  /// Completes what is in front of the first commit, and lets that arrive.
  void reach_commit();
  /// Reports operations that nothing has committed when the block ends.
  void finish(Warp& warp);

 private:
  Block& block_;
  std::deque<std::unique_ptr<TensorOperation>> queue_;
  std::deque<std::size_t> commits_;  // positions in the queue of commits, counted from its very beginning
  std::size_t done_ = 0, issued_ = 0;
};

}  // namespace jit::emulator
