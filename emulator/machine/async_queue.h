// Asynchronous operations that run until something completes them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace jit::emulator {

class Random;

/// A copy that was issued and is not complete.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  /// Performs the operation and signals its completion.
  virtual void complete() = 0;
  virtual std::string describe() const = 0;
};

/// Operations that complete by an mbarrier or by the end of the grid. They complete as late as possible: one
/// at a time, when no warp of the cluster can continue. A thread's own state holds the operations that it
/// waits for by group.
class AsyncQueue {
 public:
  void push(std::unique_ptr<PendingOperation> operation) { pending_.push_back(std::move(operation)); }
  bool empty() const { return pending_.empty(); }
  std::size_t size() const { return pending_.size(); }
  /// Completes one that `random` picks. False when there is none.
  bool complete_one(Random& random);
  const std::vector<std::unique_ptr<PendingOperation>>& pending() const { return pending_; }

 private:
  std::vector<std::unique_ptr<PendingOperation>> pending_;
};

}  // namespace jit::emulator
