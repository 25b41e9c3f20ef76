// Runs work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace jit {

/// Calls `work(i)` for every i below `count`, in ascending order, on `threads` threads (0: one per core), and
/// waits. `work` must not throw. Where no more threads can be started, those that run do the work.
template <class Work>
void in_parallel(std::size_t count, const Work& work, std::size_t threads = 0) {
  std::atomic<std::size_t> next = 0;
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t i = 1; i < std::min(threads, count); ++i) helpers.emplace_back(take_turns);
  } catch (const std::system_error&) {  // this thread helps
  }
  take_turns();
}

}  // namespace jit
