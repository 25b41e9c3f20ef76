// Launches: a kernel over a grid, and its result.
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
  bool dependent = false;    ///< may start before the previous grid has ended
  bool cooperative = false;  ///< all blocks run at the same time
};

/// How strictly a kernel is checked: which omissions of what PTX requires are reported.
enum class Level {
  strict,  ///< all that PTX requires
  /// Only what matters on hardware, for kernels that rely on it: tcgen05.fence has no effect; a tcgen05.ld
  /// ends where one of its registers is read; setmaxnreg acts per warp; lanes with equal operands start one
  /// bulk store, or one mbarrier operation.
  silicon,
};

struct LaunchOptions {
  std::uint64_t seed = 0;  ///< decides the order in which warps run and asynchronous operations complete
  int threads = 0;         ///< of the host; 0: all cores
  std::uint64_t step_limit = std::uint64_t{1} << 40;  ///< warp instructions of one cluster
  std::uint64_t resident_blocks = 0;  ///< number that the device runs at once; 0: the whole grid
  int blocks_per_multiprocessor = 1;  ///< blocks that share tensor memory; at least 1
  std::size_t smem_limit = 232448;    ///< bytes of shared memory that a block may have, static and dynamic
  int registers_per_thread = 0;  ///< what the kernel was compiled for; 0: the most that max_threads allows
  bool check_races = true;       ///< false: faster, without race detection
  Level level = Level::strict;   ///< strictness of the checks
  std::vector<FindingKind> allowed = {};  ///< left out of the findings, unless they end the launch
  /// Called some fifty times a second in the caller's thread; true ends the launch. Null: never interrupted.
  std::function<bool()> is_interrupted = {};
};

struct LaunchResult {
  std::vector<Finding> findings;  ///< at most 64, each location once; empty: no fault
  Counts counts;
  std::uint64_t warp_instructions = 0;
  double seconds = 0;
};

class GlobalRaces;

/// Previous grids that may still run when a dependent launch begins; null: all have ended.
using GridsInFront = std::shared_ptr<GlobalRaces>;

/// Ends a launch because LaunchOptions::is_interrupted said so.
class LaunchInterrupted : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

/// Runs a kernel to its end, in `options.threads` threads, including the caller's unless that polls
/// `is_interrupted`. `parameters` is the parameter block (Function::arguments). Throws std::invalid_argument
/// for an illegal launch: too many threads, too much shared memory, an empty grid, a cluster that does not
/// divide the grid, too short a parameter block, no memory for the module's variables; and LaunchInterrupted.
/// Faults while it runs become findings. A dependent launch is checked for races with `in_front`, where every
/// launch stores the state that a dependent successor needs; null: previous grids have ended. Thread safe.
LaunchResult launch(const Function& function, const LaunchShape& shape, std::span<const std::byte> parameters,
                    Memory& memory, const LaunchOptions& options = {}, GridsInFront* in_front = nullptr);

}  // namespace jit::emulator
