// Limits how many clusters of a grid run at once, and detects when they only wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace jit::emulator {

/// Shared by the host threads that run a grid. Thread safe.
class Residency {
 public:
  /// `most`: clusters at once; 0: any number.
  Residency(std::uint64_t most, std::size_t workers) : most_(most), workers_(workers) {}

  /// Reserves a slot for a cluster. False when the device is full.
  bool enter();
  /// A cluster has ended.
  void leave();
  std::uint64_t most() const { return most_; }

  /// Number of changes so far that others can see, or that freed a slot.
  std::uint64_t changes() const;
  void note_change();

  /// Notes that a host thread's clusters have all only polled since `changes`, as `waits` says, and that it
  /// cannot begin another. When all host threads do so and nothing has changed: a deadlock; returns all
  /// `waits`.
  std::optional<std::string> note_polling(std::size_t worker, std::uint64_t changes, std::string waits);
  /// Notes that a host thread has no cluster left.
  void note_end(std::size_t worker);

 private:
  struct Worker {
    bool has_ended = false;
    std::uint64_t polling_since = ~std::uint64_t{0};
    std::string waits;
  };

  const std::uint64_t most_;
  mutable std::mutex mutex_;
  std::uint64_t running_ = 0;
  std::uint64_t changes_ = 0;
  std::vector<Worker> workers_;
};

}  // namespace jit::emulator
