// Jobs that run ahead of the thread that waits for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace jit {

/// Does jobs on as many threads as there are cores, the lowest first, while the owner uses those that are done. One
/// that is no longer wanted when its turn comes is passed over. Destruction waits for the jobs that have begun.
class CompileAhead {
 public:
  /// `work(i)` does job i and must not throw; `is_wanted(i)` tells whether it is worth the while. Both are called from
  /// any thread.
  CompileAhead(std::size_t count, std::function<void(std::size_t)> work,
               std::function<bool(std::size_t)> is_wanted);
  ~CompileAhead();

  /// Returns when job `i` is done, or was passed over.
  void wait(std::size_t i);

 private:
  void take_turns(const std::stop_token& stop);

  const std::function<void(std::size_t)> work_;
  const std::function<bool(std::size_t)> is_wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::vector<bool> done_;
  std::vector<std::jthread> threads_;  // the last member: they are gone before the others are
};

}  // namespace jit
