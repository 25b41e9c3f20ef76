// The clusters of a grid, and the host threads that run them.
#pragma once

#include <array>
#include <atomic>
#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <emulator/counts.h>
#include <emulator/launch.h>

#include "machine/block.h"
#include "machine/random.h"

namespace jit::emulator {

using Size3 = std::array<unsigned, 3>;

inline std::uint64_t product(const Size3& size) { return std::uint64_t{size[0]} * size[1] * size[2]; }
std::string to_text(const Size3& size);  ///< "(1, 2, 3)"

/// The grid's clusters, handed out in order to the host threads.
class Grid {
 public:
  explicit Grid(const LaunchShape& shape) {
    for (std::size_t d = 0; d < 3; ++d) clusters_[d] = shape.grid[d] / shape.cluster[d];
    cluster_ = shape.cluster;
    count_ = product(clusters_);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t take() { return next_.fetch_add(1); }
  /// The next cluster that no thread has taken.
  std::uint64_t next() const { return next_; }
  /// ctaid of the first block of a cluster.
  Size3 first_block(std::uint64_t number) const {
    const std::uint64_t x = number % clusters_[0], y = number / clusters_[0] % clusters_[1],
                        z = number / clusters_[0] / clusters_[1];
    return {static_cast<unsigned>(x) * cluster_[0], static_cast<unsigned>(y) * cluster_[1],
            static_cast<unsigned>(z) * cluster_[2]};
  }

 private:
  Size3 clusters_{}, cluster_{};
  std::uint64_t count_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
};

/// Round-to-nearest with subnormals in this thread, since callers may have set another mode, as XLA's threads
/// do.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&callers_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t callers_;
};

/// One host thread's share of the work.
class Worker {
 public:
  Worker(Launch& launch, Grid& grid, std::size_t index);

  /// Runs until the grid has ended or the launch was stopped. Never throws.
  void run() noexcept;

  enum class Turn { ended, goes_on, only_polls };
  /// Runs each cluster for a slice, a short one in a device group. Never throws: an exception ends the
  /// worker.
  Turn take_turn() noexcept;
  /// The words that its clusters poll: "; block (1, 0, 0) warp 0 polls …"
  std::string describe_polling() const;
  /// The block that cannot begin: "; block (5, 0, 0) has not begun, …"
  std::string describe_next() const;
  /// Ends a launch that only polls, with a finding. Never throws.
  void stop_as_deadlock(std::string text) noexcept;

  const Counts& counts() const { return counts_; }
  std::uint64_t steps() const;  ///< warp instructions so far
  const std::exception_ptr& failure() const { return failure_; }

 private:
  Turn step();
  std::uint64_t short_slice();
  bool begin_cluster();
  void place(Cluster& cluster);
  void look_for_deadlock(std::uint64_t changes);
  [[noreturn]] void stop_polling_warp(std::string text);
  void end();

  Launch& launch_;
  Grid& grid_;
  const std::size_t index_;
  Counts counts_;
  const bool begin_together_, shares_tensor_memory_;
  Random random_;
  std::vector<std::unique_ptr<Cluster>> resident_;
  /// Tensor-memory columns by multiprocessor and block rank; blocks that end without freeing theirs keep
  /// them.
  std::vector<std::vector<std::shared_ptr<TensorColumns>>> multiprocessors_;
  bool all_taken_ = false;
  std::uint64_t steps_ = 0;  // of ended clusters
  std::exception_ptr failure_;
};

}  // namespace jit::emulator
