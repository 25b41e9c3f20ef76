// mbarrier objects of a block (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/decoder.h"
#include "machine/memory_access.h"
#include "machine/warp.h"

namespace jit::emulator {

/// Most arrivals that an mbarrier counts, and most bytes by which it can be short or ahead.
inline constexpr std::int64_t mbarrier_limit = (1 << 20) - 1;

/// The rule that an operation broke. The mbarrier stays usable.
struct MbarrierFault {
  FindingKind kind;
  std::string message;
};

/// One mbarrier: the phase it is in and what the phase still waits for. Wait token: the phase's number.
class Mbarrier final : public Waitable {
 public:
  /// `offset` in the shared memory of block `rank` of its cluster. Initially uninitialized. One object serves
  /// all mbarriers that the kernel creates at this address.
  Mbarrier(Agent agent, unsigned rank, std::uint32_t offset) : agent_(agent), rank_(rank), offset_(offset) {}

  /// mbarrier.init, executed as `access` says.
  void init(std::uint32_t count, const Access& access);
  void invalidate() { valid_ = false; }
  bool is_valid() const { return valid_; }

  /// The incomplete phase. A new init continues the numbers.
  std::uint64_t phase() const { return phase_; }
  /// Whether a wait for the phase of this parity is over. The first phase after init has parity 0.
  bool parity_is_over(std::uint32_t parity) const { return ((phase_ - first_phase_) & 1) != (parity & 1); }
  std::uint32_t pending() const { return pending_; }  ///< arrivals that the phase still needs
  std::int64_t missing_bytes() const { return transactions_; }

  /// `count` arrivals. `knowledge` is released to those that wait for this phase; null: nothing is.
  [[nodiscard]] std::optional<MbarrierFault> arrive(std::uint32_t count, const Knowledge* knowledge);
  /// Raises the phase's expected arrivals by `count` (cp.async.mbarrier.arrive without .noinc).
  [[nodiscard]] std::optional<MbarrierFault> expect_arrivals(std::uint32_t count);
  /// Lowers the expected arrivals of later phases by `count`.
  [[nodiscard]] std::optional<MbarrierFault> drop(std::uint32_t count);
  [[nodiscard]] std::optional<MbarrierFault> expect_transaction(std::int64_t bytes);  ///< expect_tx
  /// complete_tx. Writes of an asynchronous operation carry epoch (agent(), write_time()).
  [[nodiscard]] std::optional<MbarrierFault> complete_transaction(std::int64_t bytes);

  std::uint32_t offset() const { return offset_; }
  Agent agent() const { return agent_; }
  /// Epoch time of writes that complete in this phase.
  std::uint32_t write_time() const { return static_cast<std::uint32_t>(phase_) + 1; }
  /// Knowledge for a waiter: the releases of all complete phases.
  const Knowledge& knowledge() const { return released_; }

  /// The 64 bits that an arrival returns: the phase and its pending count.
  std::uint64_t state() const;
  /// Whether an arrival here returned `state` in this phase or the previous one; only then is_over is
  /// defined.
  bool knows(std::uint64_t state) const;
  bool state_is_over(std::uint64_t state) const { return state_phase(state) != state_phase(this->state()); }
  static bool is_state(std::uint64_t value);
  static std::uint32_t pending_count(std::uint64_t state);

  bool is_over(std::uint64_t token) const override { return phase_ > token; }
  std::string describe(std::uint64_t token) const override;
  /// "the mbarrier at byte 16 of shared memory"
  std::string name() const;

  /// Whether the last mbarrier.init happens before the lane's current instruction.
  bool is_init_visible(const Warp& warp, int lane) const;
  /// Whether copies that the lane starts now also see it, which needs a proxy fence.
  bool is_init_visible_to_copies(const Warp& warp, int lane) const;
  /// fence.mbarrier_init by the lanes `exec`, before this phase of the cluster's barrier ends. Without effect
  /// for lanes that did not initialize it.
  void publish_init(const Warp& by, std::uint64_t cluster_phase);

  /// Records that lanes used the mbarrier, with the time of the last use.
  void note_use(Agent agent, std::uint32_t lanes, std::uint32_t time);
  /// Whether all uses lie in the past of the lane.
  bool is_quiet_for(const Warp& warp, int lane) const;

  /// Counts a refusal: a warp found the phase incomplete. The first `patience` refusals return false at once;
  /// afterwards returns true: the warp should wait.
  bool refuse(Agent warp, int patience);
  /// The phase of the warp's last refusal.
  std::optional<std::uint64_t> refused_in(Agent warp) const;
  void forget_refusal(Agent warp);

 private:
  static std::uint64_t state_phase(std::uint64_t state);
  [[nodiscard]] std::optional<MbarrierFault> complete_phase_if_due();

  struct Use {
    Agent agent;
    std::uint32_t lanes;
    std::uint32_t time;
  };
  static bool is_past(const Use& use, const Warp& warp, int lane);
  struct Refusal {
    Agent warp;
    std::uint64_t phase;
    int times;
  };

  Agent agent_;
  unsigned rank_;
  std::uint32_t offset_;
  bool valid_ = false;
  std::uint32_t count_ = 0, pending_ = 0;
  std::int64_t transactions_ = 0;  // bytes expected and not completed; can be negative temporarily
  std::uint64_t phase_ = 0, first_phase_ = 0;
  Knowledge gathering_, released_;
  Use init_ = {};                                // by one lane
  std::optional<Use> init_fence_;                // fence.mbarrier_init by that lane
  std::optional<std::uint64_t> init_published_;  // phase of the cluster's barrier
  std::vector<Use> uses_;
  std::vector<Refusal> refusals_;
};

/// The mbarriers of a block, by offset in its shared memory. Wait token: state of `polled`.
class MbarrierTable final : public Waitable {
 public:
  Mbarrier* find(std::uint32_t offset);  ///< null when there is none
  /// The mbarrier object at an address where mbarrier.init executes.
  Mbarrier& make(const Block& block, std::uint32_t offset);

  /// Reports wrong_transaction_count for mbarriers that have all arrivals but lack bytes. The scheduler calls
  /// it when no warp can continue; `warp` is any of the block.
  void report_missing(const Warp& warp) const;
  /// fence.mbarrier_init: the inits by `warp` become visible after the next barrier.cluster, relaxed or not.
  void publish_inits(const Warp& warp);

  /// Wait token for the end of any phase of any mbarrier, for a warp that polls several; `offset` is one of
  /// them.
  std::uint64_t poll_token(std::uint32_t offset) const;
  bool is_over(std::uint64_t token) const override;
  std::string describe(std::uint64_t token) const override;

  std::map<std::uint32_t, std::unique_ptr<Mbarrier>> all;

 private:
  std::uint32_t completed_phases() const;
};

/// The mbarrier that `lane`'s instruction operates on, checked: without one the launch stops; an init that is
/// not ordered before is reported. `verb` describes the instruction: "arrives at".
Mbarrier& use_mbarrier(Warp& warp, int lane, const SharedPlace& place, const char* verb);

/// Calls f(mbarrier, lanes) for each mbarrier that lanes of `mask` use.
template <class F>
void for_each_mbarrier(std::uint32_t mask, const std::array<Mbarrier*, warp_lanes>& mbarriers, F f) {
  while (mask != 0) {
    Mbarrier* const mbarrier = mbarriers[static_cast<std::size_t>(std::countr_zero(mask))];
    std::uint32_t lanes = 0;
    for_each_lane(mask, [&](int lane) {
      if (mbarriers[static_cast<std::size_t>(lane)] == mbarrier) lanes |= 1u << lane;
    });
    mask &= ~lanes;
    f(*mbarrier, lanes);
  }
}

/// Reports the fault, if any, at `pc`, where the operation was issued.
void report_fault(std::uint32_t pc, const Warp& warp, int lane, const std::optional<MbarrierFault>& fault);

/// Part of decode_mbarrier: cp.async.mbarrier.arrive.
std::unique_ptr<const Operation> decode_arrival_after_copies(Decoder& decoder);

}  // namespace jit::emulator
