// Launches: a kernel over a grid, and what came of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <emulator/counts.h>
#include <emulator/finding.h>
#include <emulator/memory.h>
#include <emulator/module.h>

namespace jit::emulator {

struct LaunchShape {
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  std::array<unsigned, 3> cluster = {1, 1, 1};
  std::size_t dynamic_smem_bytes = 0;
  bool dependent = false;    ///< may start before the grid in front of it has ended
  bool cooperative = false;  ///< all blocks run at the same time
};

/// The measure of a kernel: how much of what PTX asks for is missed where it is not done.
enum class Level {
  strict,  ///< all that PTX asks for
  /// As much as matters on silicon, for kernels that rely on it: tcgen05.fence is nothing there, and a tcgen05.ld is over where
  /// one of its registers is read; setmaxnreg is for each warp; lanes that do the same start one bulk store, or mbarrier.
  silicon,
};

struct LaunchOptions {
  std::uint64_t seed = 0;  ///< of the order in which warps run and asynchronous operations complete
  int threads = 0;         ///< of the host; 0: all cores
  std::uint64_t step_limit = std::uint64_t{1} << 40;  ///< warp instructions of one cluster
  std::uint64_t resident_blocks = 0;  ///< how many the device runs at once; 0: all of the grid
  int blocks_per_multiprocessor = 1;  ///< that share tensor memory; at least 1
  std::size_t smem_limit = 232448;    ///< bytes of shared memory that a block may have, static and dynamic
  int registers_per_thread = 0;  ///< what the kernel was compiled for; 0: the most that max_threads allows
  bool check_races = true;       ///< false: faster, and memory is not watched
  Level level = Level::strict;   ///< of what is reported
  std::vector<FindingKind> allowed = {};  ///< left out of the findings, unless they end the launch
  /// Asked some fifty times a second, in the caller's thread; true ends the launch. None: nobody asks.
  std::function<bool()> is_interrupted = {};
};

struct LaunchResult {
  std::vector<Finding> findings;  ///< at most 64, each place once; empty: nothing wrong was seen
  Counts counts;
  std::uint64_t warp_instructions = 0;
  double seconds = 0;
};

class GlobalRaces;

/// Grids of a stream that a dependent launch may not find ended; null: all have.
using GridsInFront = std::shared_ptr<GlobalRaces>;

/// Ends a launch because LaunchOptions::is_interrupted said so.
class LaunchInterrupted : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

/// Runs a kernel to its end, in `options.threads` threads, one of them the caller's unless that has to ask.
/// `parameters` is the parameter block, as Function::arguments makes it. Throws std::invalid_argument with a sentence
/// when the launch is not a legal one: too many threads, too much shared memory, an empty grid, a cluster that does
/// not divide the grid, too short a parameter block, no memory for the module's variables; and LaunchInterrupted. What
/// goes wrong while it runs is in the findings. A dependent launch is watched beside `in_front`, where every launch
/// leaves what a dependent one behind it needs; null: what is in front of it has ended. Thread safe.
LaunchResult launch(const Function& function, const LaunchShape& shape, std::span<const std::byte> parameters,
                    Memory& memory, const LaunchOptions& options = {}, GridsInFront* in_front = nullptr);

}  // namespace jit::emulator
