#include "operations/tcgen05/pipe.h"

#include <utility>

#include <fmt/format.h>

#include "machine/block.h"
#include "operations/barriers/mbarrier_wait.h"

namespace jit::emulator {
namespace {

class Commit final : public TensorOperation {
 public:
  Commit(const Issue& issue, Agent agent, std::uint32_t time,
         std::vector<std::pair<Block*, Mbarrier*>> mbarriers)
      : issue_(issue), agent_(agent), time_(time), mbarriers_(std::move(mbarriers)) {}

  void complete(bool is_idle) override {
    Knowledge released = *issue_.before;
    if (time_ != 0) {
      released.past.raise(agent_, all_lanes, time_);
      released.past.raise(agent_ + 1, all_lanes, time_);
    }
    for (const auto& [block, mbarrier] : mbarriers_) {
      if (has_ended(*block)) {
        // Hardware permits an arrival that is not needed.
        if (is_idle && issue_.warp.launch().options.level == Level::silicon) continue;
        issue_.report(
            FindingKind::unfinished_copy,
            fmt::format("block {} of the cluster exits before the operations that this commit covers are "
                        "complete: nobody waited for the mbarrier",
                        block->rank));
      } else if (!mbarrier->is_valid()) {
        issue_.report(FindingKind::barrier_misuse,
                      mbarrier->name() + " was invalidated before this commit arrived at it");
      }
      if (mbarrier->is_valid()) {
        report_fault(issue_.pc, issue_.warp, issue_.lane, mbarrier->arrive(1, &released));
      }
    }
  }

 private:
  const Issue issue_;
  const Agent agent_;
  const std::uint32_t time_;
  const std::vector<std::pair<Block*, Mbarrier*>> mbarriers_;
};

/// A commit's entry in the cluster's queue; whichever entry is picked, the pipe's oldest commit arrives.
class PendingCommit final : public PendingOperation {
 public:
  explicit PendingCommit(TensorPipe& pipe) : pipe_(pipe) {}
  void complete() override { pipe_.reach_commit(); }
  std::string describe() const override { return "a tcgen05.commit"; }

 private:
  TensorPipe& pipe_;
};

}  // namespace

void TensorPipe::issue(std::unique_ptr<TensorOperation> operation) {
  queue_.push_back(std::move(operation));
  ++issued_;
}

void TensorPipe::commit(const Issue& issued, Agent agent, std::uint32_t time,
                        std::vector<std::pair<Block*, Mbarrier*>> mbarriers) {
  commits_.push_back(issued_);
  issue(std::make_unique<Commit>(issued, agent, time, std::move(mbarriers)));
  block_.cluster.async.push(std::make_unique<PendingCommit>(*this));
}

void TensorPipe::reach_commit() {
  const std::size_t last = commits_.front();
  const bool is_idle = done_ == last;
  commits_.pop_front();
  while (done_ <= last) {
    const std::unique_ptr<TensorOperation> operation = std::move(queue_.front());
    queue_.pop_front();
    ++done_;
    operation->complete(is_idle);
  }
}

void TensorPipe::finish(Warp& warp) {
  const std::size_t covered = commits_.empty() ? 0 : commits_.back() + 1 - done_;
  if (queue_.size() <= covered) return;
  warp.report(FindingKind::unfinished_copy, -1,
              fmt::format("the block exits with {} tcgen05 operations that no tcgen05.commit covers",
                          queue_.size() - covered));
}

}  // namespace jit::emulator
