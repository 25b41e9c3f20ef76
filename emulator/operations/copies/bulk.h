// Bulk copies: what they have in common, and what a warp keeps of those that complete by bulk group (PTX ISA,
// "Data Movement and Conversion Instructions: Bulk copy", "Async group mechanism").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/async_queue.h"
#include "machine/decoder.h"
#include "machine/memory_access.h"
#include "machine/warp.h"
#include "operations/barriers/mbarrier.h"
#include "operations/copies/bulk_reduction.h"
#include "operations/copies/bulk_region.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {

/// Who issued an asynchronous operation, and what lay before that.
struct Issue {
  Issue(Warp& issuer, int issuing_lane);

  Warp& warp;
  std::uint32_t pc;
  int lane;
  std::shared_ptr<const Knowledge> before;

  /// An access to shared memory that the operation makes later, as `lanes` of `agent` at `time`.
  Access access(Agent agent, std::uint32_t time, std::uint32_t lanes = all_lanes) const;
  void report(FindingKind kind, std::string message) const;
};

/// A copy to shared memory of a block of the cluster that completes on an mbarrier there.
class CopyToShared : public PendingOperation {
 public:
  CopyToShared(Issue issue, SharedPlace to, Mbarrier& mbarrier, std::uint32_t bytes);
  void complete() final;
  std::string describe() const final;

 protected:
  /// Moves the bytes. Accesses carry the epoch of `access`.
  virtual void move(const Access& access) = 0;
  const Issue& issue() const { return issue_; }
  const SharedPlace& to() const { return to_; }
  std::uint32_t bytes() const { return bytes_; }

 private:
  const Issue issue_;
  const SharedPlace to_;
  Mbarrier& mbarrier_;
  const std::uint32_t bytes_;
};

/// Starts a copy from global memory to `to`. Checks all accesses and announces the write.
void start_load(Warp& warp, int lane, const std::shared_ptr<const BulkRegion>& region, const Issue& issue,
                const SharedPlace& to, Mbarrier& mbarrier);

/// A copy, or reduction, from shared to global memory. It reads and writes when it is told to.
class CopyToGlobal {
 public:
  CopyToGlobal(Issue issue, SharedPlace from, BulkRegion region, std::optional<Reduction> reduction);

  bool is_read() const { return is_read_; }
  /// Takes the bytes out of shared memory, as the issuing lane of `agent` at `time`. At most once.
  void read(Agent agent, std::uint32_t time);
  /// Lets them take effect in global memory, as the issuing lane of `agent` at `time`; after `read`.
  void write(Agent agent, std::uint32_t time);
  const Issue& issue() const { return issue_; }
  std::uint32_t bytes() const { return region_.bytes; }

 private:
  const Issue issue_;
  const SharedPlace from_;
  const BulkRegion region_;
  const std::optional<Reduction> reduction_;
  bool is_read_ = false;
  std::vector<std::byte> taken_;
};

/// Each thread has groups of its own.
struct BulkState {
  explicit BulkState(Warp& warp);

  /// Puts a copy into the group that the lane has open.
  void add(int lane, std::unique_ptr<CopyToGlobal> copy);
  /// Closes the open group of a lane.
  void commit(int lane);
  /// Waits until all groups of the lane but the `newest` last ones have read their bytes, and unless
  /// `only_reads`, written them.
  void wait(Warp& warp, int lane, std::size_t newest, bool only_reads);
  /// Called when the warp's last lane exits: completes what may still run and reports shared memory that is
  /// still to be read.
  void finish(Warp& warp);

 private:
  using Group = std::vector<std::unique_ptr<CopyToGlobal>>;
  struct Lane {
    Group open;
    std::deque<Group> committed;
  };
  std::array<Lane, warp_lanes> lanes_;
  const Agent agent_;  // as whose lanes shared memory is read
  std::uint32_t time_ = 1;
};

/// The warp's state, made at first use.
BulkState& bulk_state(Warp& warp);

/// The part of an instruction that says where its copy completes: .mbarrier::complete_tx::bytes and [mbar],
/// with the blocks that .multicast::cluster adds.
struct BulkTarget {
  SharedOperand to;
  SharedOperand mbarrier;
  std::optional<Slot> block_mask;  // of .multicast::cluster
  bool own_block = false;          // .shared::cta
  bool is_of_pair = false;         // .cta_group::2: the mbarrier may be the other block's of the pair

  struct Receiver {
    SharedPlace to;
    Mbarrier* mbarrier;
  };
  /// For each block that receives the bytes of a lane: where to, and the mbarrier.
  std::vector<Receiver> receivers(Warp& warp, int lane) const;
};

/// Takes an optional .L2::cache_hint with its last operand: a hint, without effect. Returns how many operands
/// it is.
std::size_t take_cache_hint(Decoder& decoder, std::size_t operand_index);

// Parts of decode_bulk; cp, reduce, async and bulk are taken.
std::unique_ptr<const Operation> decode_bulk_linear(Decoder& decoder, bool is_reduction);
std::unique_ptr<const Operation> decode_bulk_tensor(Decoder& decoder, bool is_reduction);
std::unique_ptr<const Operation> decode_bulk_prefetch(Decoder& decoder);
std::unique_ptr<const Operation> decode_bulk_tensor_prefetch(Decoder& decoder);
std::unique_ptr<const Operation> decode_prefetch_tensormap(Decoder& decoder);
std::unique_ptr<const Operation> decode_bulk_commit(Decoder& decoder);
std::unique_ptr<const Operation> decode_bulk_wait(Decoder& decoder);

}  // namespace jit::emulator
