// Barriers of a block and of a cluster (PTX ISA, "bar, barrier" and "barrier.cluster").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine/warp.h"

namespace jit::emulator {

/// One of the sixteen barriers of a block. Wait token: its generation.
class NamedBarrier final : public Waitable {
 public:
  bool is_over(std::uint64_t token) const override { return generation_ > token; }
  void wake(Warp& warp) const override;
  std::string describe(std::uint64_t token) const override;

  /// Arrival of the lanes `warp.exec`. `expected` is the number of threads; 0: all of the block that have not
  /// exited. `lanes_true` are the predicates of a reduction. Returns the generation to wait for.
  std::uint64_t arrive(Warp& warp, unsigned id, unsigned expected, std::uint32_t lanes_true);
  /// Threads of the block have exited.
  void recheck(const Block& block);

  /// Threads with a true predicate, and all threads, of the last complete generation.
  unsigned count_true() const { return count_true_; }
  unsigned count_all() const { return count_all_; }

 private:
  void complete();

  unsigned id_ = 0;
  unsigned expected_ = 0;  // from the first arrival; 0: all
  unsigned arrived_ = 0;
  unsigned threads_ = 0;  // current meaning of `expected_`
  unsigned gathering_true_ = 0, gathering_count_ = 0;
  unsigned count_true_ = 0, count_all_ = 0;
  std::uint64_t generation_ = 0;
  Knowledge gathering_, released_;
};

class NamedBarriers {
 public:
  static constexpr unsigned count = 16;

  explicit NamedBarriers(const Block& block) : block_(block) {}
  NamedBarrier& at(unsigned id) { return barriers_[id]; }
  /// A warp of the block has ended.
  void recheck();

 private:
  const Block& block_;
  std::array<NamedBarrier, count> barriers_;
};

/// The barrier of a cluster. Wait token: its phase.
class ClusterBarrier final : public Waitable {
 public:
  explicit ClusterBarrier(const Cluster& cluster) : cluster_(cluster) {}

  bool is_over(std::uint64_t token) const override { return phase_ > token; }
  void wake(Warp& warp) const override;
  std::string describe(std::uint64_t token) const override;

  void arrive(Warp& warp, bool release);
  /// The phase in which the warp has arrived without a wait; stops the launch when there is none.
  std::uint64_t take_arrival(Warp& warp);
  /// The incomplete phase.
  std::uint64_t phase() const { return phase_; }
  /// Number of phases that the warp has waited for.
  std::uint64_t phases_waited_for(const Warp& warp) const;
  void recheck();

 private:
  unsigned threads() const;

  const Cluster& cluster_;
  std::unordered_map<const Warp*, std::uint64_t> arrivals_;
  std::unordered_map<const Warp*, std::uint64_t>
      waited_for_;  // phases that are over, of warps that have waited
  unsigned arrived_ = 0;
  std::uint64_t phase_ = 0;
  Knowledge gathering_, released_;
};

/// bar.warp.sync over one set of lanes. Wait token: its generation.
class WarpBarrier final : public Waitable {
 public:
  WarpBarrier(std::uint32_t members, std::uint32_t alive) : members_(members), alive_(alive) {}

  std::uint32_t members() const { return members_; }
  bool is_over(std::uint64_t token) const override { return generation_ > token; }
  void wake(Warp& warp) const override;
  std::string describe(std::uint64_t token) const override;

  /// Arrival of the lanes `warp.exec`. Returns the generation to wait for.
  std::uint64_t arrive(Warp& warp);
  /// Checks again with the lanes that are still alive.
  void recheck(std::uint32_t alive);

 private:
  std::uint32_t members_;
  std::uint32_t alive_;
  std::uint32_t arrived_ = 0;
  std::uint64_t generation_ = 0;
  Knowledge gathering_, released_;
};

/// Living threads of a block, each warp counted whole.
unsigned living_threads(const Block& block);

}  // namespace jit::emulator
