// A running warp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine/block.h"
#include "machine/happens_before.h"
#include "machine/kernel.h"
#include "machine/lane_knowledge.h"
#include "machine/launch.h"

namespace jit::emulator {

struct CpAsyncState;   // operations/copies/cp_async.h
struct BulkState;      // operations/copies/bulk.h
struct RegisterWatch;  // operations/warps/register_watch.h
class Warpgroup;       // operations/warps/warpgroup.h
class WarpBarrier;     // operations/barriers/barrier.h

inline constexpr int warp_lanes = 32;

/// Something that a warp can wait for.
class Waitable {
 public:
  virtual ~Waitable() = default;
  /// Whether a wait that began with `token` is over.
  virtual bool is_over(std::uint64_t token) const = 0;
  /// Called once when a wait without retry ends, before the warp continues.
  virtual void wake(Warp&) const {}
  /// Whether blocks outside of the cluster may end the wait.
  virtual bool may_end_from_outside() const { return false; }
  /// "barrier 1 (64 of 128 threads there)"
  virtual std::string describe(std::uint64_t token) const = 0;
};

struct Wait {
  const Waitable* on = nullptr;
  std::uint64_t token = 0;
  bool retry = false;

  explicit operator bool() const { return on != nullptr; }
};

/// The reconvergence point of a branch: lanes that arrive wait for the rest.
struct Join {
  std::uint32_t pc = 0;
  std::uint32_t expected = 0;  ///< lanes of the branch that have not exited
  std::uint32_t arrived = 0;
  int parent = -1;  ///< index in Warp::joins of the enclosing one
};

/// Lanes that execute together. Paths of one warp run in any order (independent thread scheduling).
struct Path {
  std::uint32_t pc = 0;
  std::uint32_t lanes = 0;
  int join = -1;  ///< index in Warp::joins of its innermost reconvergence point
  Wait wait = {};
};

struct Warp {
  Warp(Block& block, int id);
  ~Warp();
  Warp(const Warp&) = delete;
  Warp& operator=(const Warp&) = delete;

  Block& block;
  const int id;               ///< in the block
  const Agent agent;          ///< in the cluster
  bool is_held_back = false;  ///< runs mainly while the others wait

  std::uint32_t pc = 0;      ///< of the current instruction
  std::uint32_t active = 0;  ///< lanes of the current path
  std::uint32_t exec = 0;    ///< lanes of `active` whose guard holds
  std::uint32_t alive = 0;   ///< existing lanes that have not exited
  std::vector<Path> paths;   ///< paths that do not wait at a join
  std::vector<Join> joins;
  std::size_t current = 0;  ///< index in `paths` of the running one, whose pc is stale
  Wait wait;                ///< of the running path, set by wait_for

  int register_limit = 0;   ///< per thread, set by setmaxnreg; 0: as launched
  std::uint32_t carry = 0;  ///< CC.CF of each lane (PTX ISA, "Extended-Precision Integer Arithmetic")

  LaneKnowledge knowledge;

  /// GlobalShadow's index for accesses of this warp; an access repeated at the same time reuses it.
  struct RecentAccess {
    std::uint32_t pc = 0, time = 0;
    std::uint32_t index = 0;
  };
  std::array<RecentAccess, 8> recent_accesses = {};

  /// Strong reads of global memory that return unchanged values, as in a loop that waits for another block.
  struct Polling {
    struct Read {
      std::uint32_t pc = 0;
      std::uint64_t address = 0, value = 0;
    };
    static constexpr std::size_t places = 512;  ///< hash slots for reads of a loop, by pc
    std::vector<Read> reads;                    ///< by hash slot; empty before the first
    std::uint64_t in_a_row = 0, count = 0;
    std::uint64_t steps_since = 0;  ///< warp instructions since the last one
  };
  Polling polling;
  /// A strong read of the lanes `exec` found `value` (of all of them), the first at `address`.
  void note_poll(std::uint64_t address, std::uint64_t value);
  bool is_polling() const;

  std::unique_ptr<CpAsyncState> cp_async;  ///< created at the first use
  std::unique_ptr<BulkState> bulk;
  std::unique_ptr<RegisterWatch> watch;  ///< of wgmma, or of loads of tensor memory
  std::shared_ptr<Warpgroup> group;
  std::vector<std::unique_ptr<WarpBarrier>> barriers;  ///< of bar.warp.sync, one per lane mask
  std::vector<std::byte> local;                        ///< 32 × Kernel::local_bytes, lane by lane

  // Registers: `r32(slot)[lane]`.
  std::uint32_t* r32(Slot slot) { return registers_.get() + std::size_t{slot} * warp_lanes; }
  std::uint64_t* r64(Slot slot) { return reinterpret_cast<std::uint64_t*>(r32(slot)); }
  float* f32(Slot slot) { return reinterpret_cast<float*>(r32(slot)); }
  double* f64(Slot slot) { return reinterpret_cast<double*>(r32(slot)); }
  std::uint32_t& predicate(Predicate index) { return predicates_[index]; }
  /// Sets the lanes `exec` of a predicate.
  void set_predicate(Predicate index, std::uint32_t values) {
    predicates_[index] = (predicates_[index] & ~exec) | (values & exec);
  }

  Launch& launch() const { return block.cluster.launch; }
  InstructionCounts& count() const { return block.cluster.counts[pc]; }
  bool whole() const { return exec == all_lanes; }

  /// Lanes that take part in a barrier at which the lanes `exec` arrive: exited lanes take part with the last
  /// path.
  std::uint32_t participants() const { return exec == alive ? all_lanes : exec; }

  /// An immediate access by a lane.
  Access access(int lane, Proxy proxy = Proxy::generic) {
    const LaneKnowledge::View& view = knowledge.of(lane);
    return {this, pc, agent, knowledge.time(), 1u << lane, false, proxy, &view.known, view.fenced};
  }
  /// An immediate access for SharedMemory's many-lane functions; each lane acts for itself.
  Access access_by_each() { return access(std::countr_zero(exec)); }
  /// By the lanes `exec` together.
  Access access_together(Proxy proxy = Proxy::generic) {
    return {this, pc, agent, knowledge.time(), exec, true, proxy, &knowledge.common(exec)};
  }

  /// Makes the current instruction wait. Operation::execute returns its result.
  Flow wait_for(const Waitable& on, std::uint64_t token, bool retry) {
    wait = {&on, token, retry};
    return retry ? Flow::wait_then_retry : Flow::wait_then_next;
  }

  /// Runs a path that can continue, for at most `budget` instructions. Returns the number executed: 0 when
  /// all wait.
  std::uint64_t run(std::uint64_t budget);
  /// For instructions that lanes execute together (shfl.sync etc.): returns whether all live lanes of
  /// `members` are in `exec`. Otherwise the path waits here for the others (return Flow::wait_then_retry).
  bool meet(std::uint32_t members);
  /// Splits the current path: `sides` partition its lanes, which reconverge at the current instruction's
  /// reconvergence point. Operation::execute returns its result.
  struct Side {
    std::uint32_t pc = 0;
    std::uint32_t lanes = 0;
  };
  Flow branch(std::span<const Side> sides);

  void report(FindingKind kind, int lane, std::string message) const {
    launch().report(kind, *this, lane, std::move(message));
  }
  [[noreturn]] void stop(FindingKind kind, int lane, std::string message) const {
    launch().stop(kind, *this, lane, std::move(message));
  }

 private:
  friend class Runner;
  void fill_presets();

  std::unique_ptr<std::uint32_t[], void (*)(std::uint32_t*)> registers_;
  std::vector<std::uint32_t> predicates_;
};

/// Calls f(lane) for each lane of the mask, in order.
template <class F>
void for_each_lane(std::uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

}  // namespace jit::emulator
