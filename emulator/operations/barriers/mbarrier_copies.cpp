// Arrivals at an mbarrier that follow cp.async copies (PTX ISA, "cp.async.mbarrier.arrive").
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "operations/barriers/mbarrier.h"
#include "operations/barriers/mbarrier_wait.h"
#include "operations/copies/cp_async.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {
namespace {

/// The arrival that cp.async.mbarrier.arrive announces; it takes place when all previous copies have
/// completed.
class ArrivalAfterCopies final : public PendingOperation {
 public:
  ArrivalAfterCopies(Warp& warp, std::uint32_t lanes, Block& block, Mbarrier& mbarrier)
      : warp_(warp),
        pc_(warp.pc),
        lanes_(lanes),
        block_(block),
        mbarrier_(mbarrier),
        before_(warp.knowledge.common(lanes)),
        copies_(track_copies(warp, lanes)) {}

  void complete() override {
    if (is_done_) return;
    std::deque<PendingOperation*>& arrivals = warp_.cp_async->arrivals;
    while (arrivals.front() != this) arrivals.front()->complete();
    arrivals.pop_front();
    is_done_ = true;
    const int lane = std::countr_zero(lanes_);
    if (has_ended(block_)) {
      warp_.launch().report_at(
          pc_, FindingKind::unfinished_copy, warp_, lane,
          "the block exits before the copies that this instruction tracks are done: nobody "
          "waited for the mbarrier");
    } else if (!mbarrier_.is_valid()) {
      warp_.launch().report_at(
          pc_, FindingKind::barrier_misuse, warp_, lane,
          mbarrier_.name() + " was invalidated before the copies that it tracks were done");
    }
    Access completion = {&warp_, pc_, mbarrier_.agent(), mbarrier_.write_time()};
    completion.knowledge = &before_;
    const Knowledge released = copies_.complete(completion);
    if (!mbarrier_.is_valid()) return;
    report_fault(pc_, warp_, lane,
                 mbarrier_.arrive(static_cast<std::uint32_t>(std::popcount(lanes_)), &released));
  }

  std::string describe() const override {
    return fmt::format("cp.async copies of warp {}, to arrive at {}", warp_.id, mbarrier_.name());
  }

 private:
  Warp& warp_;
  const std::uint32_t pc_;
  const std::uint32_t lanes_;
  Block& block_;
  Mbarrier& mbarrier_;
  const Knowledge before_;
  const TrackedCopies copies_;
  bool is_done_ = false;  // early, because a later arrival took place
};

struct ArriveAfterCopies final : Operation {
  SharedOperand at;
  bool is_counted;  // without .noinc: the arrival raises the phase's expected count

  Flow execute(Warp& warp) const override {
    std::uint32_t left = warp.exec;
    while (left != 0) {
      const int first = std::countr_zero(left);
      const SharedPlace place = at.place(warp, first);
      if (place.block != &warp.block) {
        warp.stop(
            FindingKind::barrier_misuse, first,
            fmt::format(
                "cp.async.mbarrier.arrive works on mbarriers of the own block only, this one is of block "
                "{} of the cluster",
                place.block->rank));
      }
      std::uint32_t together = 0;
      for_each_lane(left, [&](int lane) {
        const SharedPlace other = at.place(warp, lane);
        if (other.block == place.block && other.offset == place.offset) together |= 1u << lane;
      });
      left &= ~together;
      Mbarrier* mbarrier = nullptr;
      for_each_lane(together, [&](int lane) { mbarrier = &use_mbarrier(warp, lane, place, "arrives at"); });
      if (is_counted) {
        report_fault(warp.pc, warp, first,
                     mbarrier->expect_arrivals(static_cast<std::uint32_t>(std::popcount(together))));
      }
      auto arrival = std::make_unique<ArrivalAfterCopies>(warp, together, *place.block, *mbarrier);
      warp.cp_async->arrivals.push_back(arrival.get());
      warp.block.cluster.async.push(std::move(arrival));
    }
    return Flow::next;
  }
};

}  // namespace

std::unique_ptr<const Operation> decode_arrival_after_copies(Decoder& decoder) {
  for (const char* word : {"async", "mbarrier", "arrive"}) {
    if (!decoder.take(word)) decoder.fail(fmt::format("lacks .{}", word));
  }
  auto operation = std::make_unique<ArriveAfterCopies>();
  operation->is_counted = !decoder.take("noinc");
  const bool is_generic = decoder.take_any_of({"shared::cta", "shared"}).empty();
  decoder.take("b64");
  decoder.expect_count(1);
  operation->at = shared_operand(decoder, 0, is_generic);
  return operation;
}

}  // namespace jit::emulator
