// Jobs that run ahead of the thread that uses their results.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace jit {

/// Runs jobs on all cores in ascending order, while the owner uses finished ones. Skips a job that is no
/// longer wanted when its turn comes. The destructor waits for started jobs.
class CompileAhead {
 public:
  /// `work(i)` runs job i and must not throw; `is_wanted(i)` tells whether to run it. Both are called from
  /// any thread.
  CompileAhead(std::size_t count, std::function<void(std::size_t)> work,
               std::function<bool(std::size_t)> is_wanted);
  ~CompileAhead();

  /// Waits until one of `jobs` is finished or skipped, and returns the first such one. Requires: there are jobs.
  std::size_t wait(std::span<const std::size_t> jobs);

 private:
  void take_turns(const std::stop_token& stop);

  const std::function<void(std::size_t)> work_;
  const std::function<bool(std::size_t)> is_wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::vector<bool> done_;
  std::vector<std::jthread> threads_;  // declared last: threads end before other members are destroyed
};

}  // namespace jit
