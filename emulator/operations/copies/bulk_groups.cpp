// Bulk groups (PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group").
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "operations/copies/bulk.h"

namespace jit::emulator {
namespace {

struct CommitBulkGroup final : Operation {
  Flow execute(Warp& warp) const override {
    BulkState& state = bulk_state(warp);
    for_each_lane(warp.exec, [&](int lane) { state.commit(lane); });
    return Flow::next;
  }
};

struct WaitForBulkGroups final : Operation {
  std::size_t newest;
  bool only_reads;

  Flow execute(Warp& warp) const override {
    BulkState& state = bulk_state(warp);
    for_each_lane(warp.exec, [&](int lane) { state.wait(warp, lane, newest, only_reads); });
    return Flow::next;
  }
};

}  // namespace

BulkState::BulkState(Warp& warp) : agent_(warp.block.cluster.add_agent()) {}

void BulkState::add(int lane, std::unique_ptr<CopyToGlobal> copy) {
  lanes_[static_cast<std::size_t>(lane)].open.push_back(std::move(copy));
}

void BulkState::commit(int lane) {
  Lane& own = lanes_[static_cast<std::size_t>(lane)];
  own.committed.push_back(std::exchange(own.open, {}));
}

void BulkState::wait(Warp& warp, int lane, std::size_t newest, bool only_reads) {
  std::deque<Group>& groups = lanes_[static_cast<std::size_t>(lane)].committed;
  if (groups.size() <= newest) return;
  const std::size_t count = groups.size() - newest;
  for (std::size_t i = 0; i < count; ++i) {
    for (const auto& copy : groups[i]) {
      if (!copy->is_read()) copy->read(agent_, time_);
      if (!only_reads) copy->write(agent_, time_);
    }
  }
  if (!only_reads) groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(count));
  warp.knowledge.acquire(1u << lane, agent_, 1u << lane, time_++);
}

void BulkState::finish(Warp&) {
  for (Lane& lane : lanes_) {
    lane.committed.push_back(std::move(lane.open));
    for (const Group& group : lane.committed) {
      for (const auto& copy : group) {
        if (!copy->is_read()) {
          copy->issue().report(
              FindingKind::unfinished_copy,
              fmt::format("the thread exits while this copy has {} bytes of shared memory still to read: "
                          "cp.async.bulk.commit_group and wait_group.read 0 must come first",
                          copy->bytes()));
          copy->read(agent_, time_);
        }
        // Only the grid's end waits for it.
        copy->write(agent_, std::numeric_limits<std::uint32_t>::max());
      }
    }
    lane = {};
  }
}

BulkState& bulk_state(Warp& warp) {
  if (!warp.bulk) warp.bulk = std::make_unique<BulkState>(warp);
  return *warp.bulk;
}

std::unique_ptr<const Operation> decode_bulk_commit(Decoder& decoder) {
  decoder.expect_count(0);
  return std::make_unique<CommitBulkGroup>();
}

std::unique_ptr<const Operation> decode_bulk_wait(Decoder& decoder) {
  auto operation = std::make_unique<WaitForBulkGroups>();
  operation->only_reads = decoder.take("read");
  decoder.expect_count(1);
  const std::int64_t newest = decoder.immediate(0);
  if (newest < 0) decoder.fail(fmt::format("cannot leave {} groups running; 0 or more", newest));
  operation->newest = static_cast<std::size_t>(newest);
  return operation;
}

}  // namespace jit::emulator
