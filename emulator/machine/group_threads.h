// Threads of the host that may put work into a group of devices.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace jit::emulator {

/// Threads that may put work in, until they end.
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
