// A block and its cluster while they run. One host thread runs a whole cluster, so nothing here is locked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <emulator/counts.h>

#include "machine/async_queue.h"
#include "machine/happens_before.h"
#include "machine/random.h"
#include "machine/shared_memory.h"

namespace jit::emulator {

struct Launch;
struct Warp;
struct Path;
struct Cluster;
class NamedBarriers;     // operations/barriers/barrier.h
class ClusterBarrier;    // operations/barriers/barrier.h
class MbarrierTable;     // operations/barriers/mbarrier.h
struct TensorUnitState;  // operations/tcgen05/state.h
struct TensorColumns;    // operations/tcgen05/allocation.h

struct Block {
  Block(Cluster& cluster, unsigned rank, std::array<unsigned, 3> index);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Cluster& cluster;
  const unsigned rank;                  ///< in the cluster
  const std::array<unsigned, 3> index;  ///< ctaid
  SharedMemory shared;
  std::unique_ptr<NamedBarriers> barriers;
  std::unique_ptr<MbarrierTable> mbarriers;
  /// Tensor-memory columns of the multiprocessor; null: the block shares them with no other.
  std::shared_ptr<TensorColumns> shared_columns;
  std::unique_ptr<TensorUnitState> tensor;  ///< created at the first use
  std::vector<std::unique_ptr<Warp>> warps;
  /// Registers that setmaxnreg has freed, times threads: a warpgroup may take them.
  int free_registers = 0;
  // griddepcontrol: a thread of the block has executed .wait, or .launch_dependents.
  bool waits_for_grids = false, lets_next_grid_begin = false;
};

/// Blocks that run together; a single block when the launch has no clusters.
struct Cluster {
  Cluster(Launch& launch, std::uint64_t number, std::array<unsigned, 3> first_block, std::uint64_t seed,
          Counts& counts);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Launch& launch;
  const std::uint32_t number;  ///< number that GridOrder gives it
  Counts& counts;              ///< of the host thread that runs the cluster
  Random random;
  AsyncQueue async;
  std::unique_ptr<ClusterBarrier> barrier;
  std::vector<std::unique_ptr<Block>> blocks;  ///< by rank
  std::array<unsigned, 3> shape;               ///< blocks of the cluster, by dimension
  std::array<unsigned, 3> first_block;         ///< ctaid of rank 0
  std::uint64_t steps = 0;                     ///< warp instructions executed

  /// Indices in GlobalShadow reserved for future accesses.
  struct {
    std::uint32_t first = 0, count = 0;
  } spare_accesses = {};

  /// Runs about `budget` warp instructions, fewer when every warp that can continue polls global memory.
  /// Returns whether all warps have ended. Throws LaunchStopped.
  bool run(std::uint64_t budget);
  /// Whether the cluster waits for another block of the multiprocessor, or has polled for so long that it
  /// cannot succeed by itself.
  bool is_polling_in_vain() const;
  /// The global word that it polls: "; block (1, 0, 0) warp 0 …"
  std::string describe_polling() const;

  /// A new agent, for example for an mbarrier.
  Agent add_agent() { return agents++; }
  Agent agents = 0;
  /// Agents of tcgen05 operations. Each is followed by the agent of what fences have published about it.
  std::vector<Agent> tensor_agents;

 private:
  bool run_round();
  bool run_warps(bool held_back);
  /// The warp and path that wait for a resource of another block of the multiprocessor; null: none.
  const Path* waits_outside(const Warp** waiting = nullptr) const;
  bool is_polling_ = false;  ///< in the last round, every warp that could continue was polling
  bool is_stuck_ = false;    ///< no warp can continue before another block does
  [[noreturn]] void report_deadlock();
};

}  // namespace jit::emulator
