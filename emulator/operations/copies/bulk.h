// Bulk copies: their common code, and a warp's state for those that complete by bulk group (PTX ISA, "Data
// Movement and Conversion Instructions: Bulk copy", "Async group mechanism").
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

/// The issuer of an asynchronous operation, with its knowledge at that time.
struct Issue {
  Issue(Warp& issuer, int issuing_lane);

  Warp& warp;
  std::uint32_t pc;
  int lane;
  std::shared_ptr<const Knowledge> before;

  /// A later access of the operation to shared memory, as `lanes` of `agent` at `time`.
  Access access(Agent agent, std::uint32_t time, std::uint32_t lanes = all_lanes) const;
  void report(FindingKind kind, std::string message) const;
};

/// A copy to the shared memory of a cluster's block that completes on an mbarrier there.
class CopyToShared : public PendingOperation {
 public:
  CopyToShared(Issue issue, SharedPlace to, Mbarrier& mbarrier, std::uint32_t bytes);
  void complete() final;
  std::string describe() const final;

 protected:
  /// Copies the bytes; `access` gives the epoch.
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

/// A copy or reduction from shared to global memory. Its owner calls `read` and `write`.
class CopyToGlobal {
 public:
  CopyToGlobal(Issue issue, SharedPlace from, BulkRegion region, std::optional<Reduction> reduction);

  bool is_read() const { return is_read_; }
  /// Reads the bytes of shared memory, as the issuing lane of `agent` at `time`. At most once.
  void read(Agent agent, std::uint32_t time);
  /// Writes the bytes to global memory, as the issuing lane of `agent` at `time`; after `read`.
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

/// Bulk groups of a warp; each thread has its own.
struct BulkState {
  explicit BulkState(Warp& warp);

  /// Adds a copy to the lane's open group.
  void add(int lane, std::unique_ptr<CopyToGlobal> copy);
  /// Closes the open group of a lane.
  void commit(int lane);
  /// Waits until all of the lane's groups except the `newest` last ones have read their bytes and, unless
  /// `only_reads`, written them.
  void wait(Warp& warp, int lane, std::size_t newest, bool only_reads);
  /// Called when the warp's last lane exits: completes the remaining copies; reports those that have not read
  /// shared memory.
  void finish(Warp& warp);

 private:
  using Group = std::vector<std::unique_ptr<CopyToGlobal>>;
  struct Lane {
    Group open;
    std::deque<Group> committed;
  };
  std::array<Lane, warp_lanes> lanes_;
  const Agent agent_;  // reads shared memory on the lanes' behalf
  std::uint32_t time_ = 1;
};

/// The warp's state, made at first use.
BulkState& bulk_state(Warp& warp);

/// The completion operands of a copy: .mbarrier::complete_tx::bytes and [mbar], with the target blocks of
/// .multicast::cluster.
struct BulkTarget {
  SharedOperand to;
  SharedOperand mbarrier;
  std::optional<Slot> block_mask;  // of .multicast::cluster
  bool own_block = false;          // .shared::cta
  bool is_of_pair = false;         // .cta_group::2: the mbarrier may be that of the pair's other block

  struct Receiver {
    SharedPlace to;
    Mbarrier* mbarrier;
  };
  /// The address and mbarrier in each block that receives a lane's bytes.
  std::vector<Receiver> receivers(Warp& warp, int lane) const;
};

/// Takes an optional .L2::cache_hint with its last operand, which has no effect. Returns the number of
/// operands taken.
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
