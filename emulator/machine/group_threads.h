// Host threads that may enqueue work into a device group.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace jit::emulator {

/// Threads that may enqueue work, until they end.
struct GroupThreads {
  std::mutex mutex;
  std::set<std::thread::id> ids;

  std::size_t count() {
    const std::lock_guard lock(mutex);
    return ids.size();
  }
};

/// Adds the calling thread, until it ends.
void add_this_thread(const std::shared_ptr<GroupThreads>& to);

}  // namespace jit::emulator
