// Shared by tests of compiling: contexts of their own, a kernel that compiles fast, events.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <jit/compiled_kernel.h>

#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"

namespace jit::testing {

inline constexpr Arch sm_80{8, 0, 0}, sm_90a{9, 0, 'a'};

/// Settings that keep everything in memory, or in `cache_dir`.
inline Settings private_settings(const std::string& cache_dir = "") {
  Settings settings;
  settings.disk_cache = !cache_dir.empty();
  settings.cache_dir = cache_dir;
  return settings;
}

/// A kernel that compiles in a fraction of a second.
inline AttentionSpec small_spec() { return {.head_dim = 16}; }
inline KernelConfig small_config() {
  return ForwardMmaSync{.tile_q = 16, .tile_kv = 16, .warps = 1, .stages_k = 1, .stages_v = 1};
}
inline CompiledKernel compile_small(const Context& context) {
  return compile(small_spec(), sm_90a, small_config(), context);
}

/// Collects events, from any thread.
class Events {
 public:
  Observer observer() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
  }
  std::vector<std::string> messages(Event::Kind kind) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> messages;
    for (const Event& event : events_) {
      if (event.kind == kind) messages.push_back(event.message);
    }
    return messages;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// Calls work(0) … work(count − 1) on all cores.
inline void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    pool.emplace_back([&] {
      for (std::size_t item = next++; item < count; item = next++) work(item);
    });
  }
}

}  // namespace jit::testing
