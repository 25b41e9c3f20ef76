// How many clusters of a grid run at once, and whether they only wait for each other.
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
  /// `most` clusters at once; 0: any number.
  Residency(std::uint64_t most, std::size_t workers) : most_(most), workers_(workers) {}

  /// Takes a place for a cluster. False when the device is full.
  bool enter();
  /// A cluster has ended.
  void leave();
  std::uint64_t most() const { return most_; }

  /// The number of changes so far that others can see, or that made room for others.
  std::uint64_t changes() const;
  void note_change();

  /// All clusters of a host thread have only polled since `changes`, as `waits` says, and it cannot begin another.
  /// Returns what all say when that is true of every host thread, and nothing has changed: nobody will ever go on.
  std::optional<std::string> note_polling(std::size_t worker, std::uint64_t changes, std::string waits);
  /// A host thread has no cluster and will have none.
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
