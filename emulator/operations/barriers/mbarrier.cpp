#include "operations/barriers/mbarrier.h"

#include <algorithm>

#include <fmt/format.h>

#include "operations/barriers/barrier.h"
#include "operations/barriers/mbarrier_wait.h"

namespace jit::emulator {
namespace {

// Layout of a state: 20 bits of phase, 20 of pending count, 17 of address, and a tag in the top bits that
// distinguishes it from other values.
constexpr int pending_shift = 20;
constexpr int place_shift = 40;
constexpr int tag_shift = 57;
constexpr std::uint64_t tag = 0x5a;
constexpr std::uint64_t twenty_bits = (1 << 20) - 1;
constexpr std::uint64_t place_bits = (1 << 17) - 1;

}  // namespace

void Mbarrier::init(std::uint32_t count, const Access& access) {
  // States and waits of an earlier mbarrier at this address do not match this one.
  phase_ += 2;
  first_phase_ = phase_;
  count_ = pending_ = count;
  transactions_ = 0;
  gathering_ = released_ = {};
  init_ = {access.agent, access.lanes, access.time};
  init_fence_.reset();
  init_published_.reset();
  uses_.clear();
  refusals_.clear();
  valid_ = true;
}

std::optional<MbarrierFault> Mbarrier::arrive(std::uint32_t count, const Knowledge* knowledge) {
  if (count < 1 || count > mbarrier_limit) {
    return MbarrierFault{
        FindingKind::barrier_misuse,
        fmt::format("an arrival counts {} at {}, it must count 1 to {}", count, name(), mbarrier_limit)};
  }
  if (count > pending_) {
    return MbarrierFault{
        FindingKind::barrier_misuse,
        fmt::format("{} arrival{} more at {}, of whose phase {} {} of {} arrivals were still to come", count,
                    count == 1 ? "" : "s", name(), phase_ - first_phase_, pending_, count_)};
  }
  if (knowledge) gathering_.join(*knowledge);
  pending_ -= count;
  return complete_phase_if_due();
}

std::optional<MbarrierFault> Mbarrier::expect_arrivals(std::uint32_t count) {
  if (pending_ + count > mbarrier_limit) {
    return MbarrierFault{FindingKind::barrier_misuse,
                         fmt::format("{} would wait for {} arrivals, {} is the limit", name(),
                                     pending_ + count, mbarrier_limit)};
  }
  pending_ += count;
  return {};
}

std::optional<MbarrierFault> Mbarrier::drop(std::uint32_t count) {
  if (count > count_) {
    return MbarrierFault{
        FindingKind::barrier_misuse,
        fmt::format("{} arrivals are dropped at {}, which expects {}", count, name(), count_)};
  }
  count_ -= count;
  return {};
}

std::optional<MbarrierFault> Mbarrier::expect_transaction(std::int64_t bytes) {
  if (transactions_ + bytes > mbarrier_limit) {
    return MbarrierFault{FindingKind::barrier_misuse,
                         fmt::format("{} would wait for {} bytes, {} is the limit", name(),
                                     transactions_ + bytes, mbarrier_limit)};
  }
  transactions_ += bytes;
  return {};
}

std::optional<MbarrierFault> Mbarrier::complete_transaction(std::int64_t bytes) {
  if (transactions_ - bytes < -mbarrier_limit) {
    return MbarrierFault{FindingKind::barrier_misuse,
                         fmt::format("{} is {} bytes ahead of what it was told to expect, {} is the limit",
                                     name(), bytes - transactions_, mbarrier_limit)};
  }
  transactions_ -= bytes;
  return complete_phase_if_due();
}

std::optional<MbarrierFault> Mbarrier::complete_phase_if_due() {
  if (pending_ != 0 || transactions_ > 0) return {};
  std::optional<MbarrierFault> fault;
  if (transactions_ < 0) {
    // Hardware would wait forever; continuing finds further faults.
    fault = MbarrierFault{
        FindingKind::wrong_transaction_count,
        fmt::format("phase {} of {} has all its arrivals and got {} bytes more than expect_tx announced",
                    phase_ - first_phase_, name(), -transactions_)};
    transactions_ = 0;
  }
  gathering_.past.raise(agent_, all_lanes, write_time());
  released_ = gathering_;
  ++phase_;
  pending_ = count_;
  return fault;
}

std::uint64_t Mbarrier::state() const {
  return (phase_ & twenty_bits) | std::uint64_t{pending_} << pending_shift |
         (offset_ / 8 & place_bits) << place_shift | tag << tag_shift;
}

bool Mbarrier::is_state(std::uint64_t value) { return value >> tag_shift == tag; }

std::uint32_t Mbarrier::pending_count(std::uint64_t state) {
  return static_cast<std::uint32_t>(state >> pending_shift & twenty_bits);
}

std::uint64_t Mbarrier::state_phase(std::uint64_t state) { return state & twenty_bits; }

bool Mbarrier::knows(std::uint64_t state) const {
  return is_state(state) && (state >> place_shift & place_bits) == (offset_ / 8 & place_bits) &&
         (state_phase(state) == (phase_ & twenty_bits) ||
          (state_phase(state) == ((phase_ - 1) & twenty_bits) && phase_ != first_phase_));
}

std::string Mbarrier::name() const {
  return fmt::format("the mbarrier at byte {} of shared memory{}", offset_,
                     rank_ == 0 ? "" : fmt::format(" of block {} of the cluster", rank_));
}

std::string Mbarrier::describe(std::uint64_t token) const {
  if (!valid_) return name() + ", which was invalidated";
  const std::uint64_t phase = token - first_phase_;
  return fmt::format("phase {} (parity {}) of {}: {} of {} arrivals and {} bytes are missing", phase,
                     phase & 1, name(), pending_, count_, transactions_);
}

bool Mbarrier::is_past(const Use& use, const Warp& warp, int lane) {
  const std::uint32_t others = use.agent == warp.agent ? use.lanes & ~(1u << lane) : use.lanes;
  return (others & ~warp.knowledge.of(lane).known.past.lanes_at(use.agent, use.time)) == 0;
}

bool Mbarrier::is_init_visible(const Warp& warp, int lane) const {
  return is_past(init_, warp, lane) ||
         (init_published_ && warp.block.cluster.barrier->phases_waited_for(warp) > *init_published_);
}

bool Mbarrier::is_init_visible_to_copies(const Warp& warp, int lane) const {
  const LaneKnowledge::View& view = warp.knowledge.of(lane);
  const bool is_own = init_.agent == warp.agent && init_.lanes == 1u << lane;
  if (is_own && view.fenced >= init_.time) return true;
  if ((init_.lanes & ~view.known.async_past.lanes_at(init_.agent, init_.time)) == 0) return true;
  return (init_fence_ && is_past(*init_fence_, warp, lane)) ||
         (init_published_ && warp.block.cluster.barrier->phases_waited_for(warp) > *init_published_);
}

void Mbarrier::publish_init(const Warp& by, std::uint64_t cluster_phase) {
  if (!valid_ || init_.agent != by.agent || (init_.lanes & by.exec) == 0) return;
  init_fence_ = {init_.agent, init_.lanes, by.knowledge.time()};
  init_published_ = cluster_phase;
}

void Mbarrier::note_use(Agent agent, std::uint32_t lanes, std::uint32_t time) {
  std::uint32_t at_this_time = lanes;
  std::erase_if(uses_, [&](Use& use) {
    if (use.agent != agent) return false;
    if (use.time == time) at_this_time |= use.lanes;
    use.lanes &= ~lanes;
    return use.lanes == 0 || use.time == time;
  });
  uses_.push_back({agent, at_this_time, time});
}

bool Mbarrier::is_quiet_for(const Warp& warp, int lane) const {
  return std::all_of(uses_.begin(), uses_.end(), [&](const Use& use) { return is_past(use, warp, lane); });
}

bool Mbarrier::refuse(Agent warp, int patience) {
  auto refusal =
      std::find_if(refusals_.begin(), refusals_.end(), [&](const Refusal& r) { return r.warp == warp; });
  if (refusal == refusals_.end()) refusal = refusals_.insert(refusal, {warp, phase_, 0});
  if (refusal->phase != phase_) *refusal = {warp, phase_, 0};
  // The count stops here: the patience is used up.
  if (refusal->times == patience) return true;
  ++refusal->times;
  return false;
}

std::optional<std::uint64_t> Mbarrier::refused_in(Agent warp) const {
  for (const Refusal& refusal : refusals_) {
    if (refusal.warp == warp) return refusal.phase;
  }
  return {};
}

void Mbarrier::forget_refusal(Agent warp) {
  std::erase_if(refusals_, [&](const Refusal& refusal) { return refusal.warp == warp; });
}

Mbarrier* MbarrierTable::find(std::uint32_t offset) {
  const auto found = all.find(offset);
  return found == all.end() || !found->second->is_valid() ? nullptr : found->second.get();
}

Mbarrier& MbarrierTable::make(const Block& block, std::uint32_t offset) {
  std::unique_ptr<Mbarrier>& place = all[offset];
  if (!place) place = std::make_unique<Mbarrier>(block.cluster.add_agent(), block.rank, offset);
  return *place;
}

void MbarrierTable::report_missing(const Warp& warp) const {
  for (const auto& [offset, mbarrier] : all) {
    if (!mbarrier->is_valid() || mbarrier->pending() != 0 || mbarrier->missing_bytes() <= 0) continue;
    // Reported at the instruction of a waiting warp, if there is one.
    const Warp* at = &warp;
    std::uint32_t pc = warp.pc;
    for (const auto& other : warp.block.warps) {
      for (const Path& path : other->paths) {
        if (path.wait.on != mbarrier.get()) continue;
        at = other.get();
        pc = path.pc;
      }
    }
    warp.launch().report_at(
        pc, FindingKind::wrong_transaction_count, *at, -1,
        fmt::format(
            "{} has all arrivals of its phase and lacks {} of the bytes that expect_tx announced: no copy is "
            "under way that brings them",
            mbarrier->name(), mbarrier->missing_bytes()));
  }
}

void MbarrierTable::publish_inits(const Warp& warp) {
  for (const auto& [offset, mbarrier] : all) {
    mbarrier->publish_init(warp, warp.block.cluster.barrier->phase());
  }
}

std::uint32_t MbarrierTable::completed_phases() const {
  std::uint64_t sum = 0;
  for (const auto& [offset, mbarrier] : all) sum += mbarrier->phase();
  return static_cast<std::uint32_t>(sum);
}

std::uint64_t MbarrierTable::poll_token(std::uint32_t offset) const {
  return std::uint64_t{offset} << 32 | completed_phases();
}

bool MbarrierTable::is_over(std::uint64_t token) const {
  return completed_phases() != static_cast<std::uint32_t>(token);
}

std::string MbarrierTable::describe(std::uint64_t token) const {
  const auto found = all.find(static_cast<std::uint32_t>(token >> 32));
  if (found == all.end()) return "any of several mbarriers";
  return "any of several mbarriers that it polls, among them " +
         found->second->describe(found->second->phase());
}

Mbarrier& use_mbarrier(Warp& warp, int lane, const SharedPlace& place, const char* verb) {
  if (place.offset % 8 != 0) {
    warp.stop(FindingKind::barrier_misuse, lane,
              fmt::format("{} byte {} of shared memory, which is no mbarrier: those lie at multiples of 8",
                          verb, place.offset));
  }
  Mbarrier* const mbarrier = place.block->mbarriers->find(place.offset);
  if (mbarrier == nullptr) {
    const bool was_one = place.block->mbarriers->all.count(place.offset) != 0;
    warp.stop(FindingKind::barrier_misuse, lane,
              fmt::format("{} byte {} of shared memory{}, which {}", verb, place.offset,
                          place.block == &warp.block ? "" : fmt::format(" of block {}", place.block->rank),
                          was_one ? "mbarrier.inval has ended as an mbarrier"
                                  : "is no mbarrier: no mbarrier.init has run for it"));
  }
  if (warp.launch().options.check_races) {
    if (!mbarrier->is_init_visible(warp, lane)) {
      warp.report(
          FindingKind::data_race, lane,
          fmt::format("{} {}, and nothing orders that behind its mbarrier.init: a barrier is missing between "
                      "the two{}",
                      verb, mbarrier->name(),
                      warp.block.cluster.blocks.size() > 1
                          ? " (or fence.mbarrier_init before a relaxed barrier.cluster.arrive)"
                          : ""));
    }
  }
  if (place.block != &warp.block && has_ended(*place.block)) {
    warp.report(FindingKind::barrier_misuse, lane,
                fmt::format("{} {}, which has exited", verb, mbarrier->name()));
  }
  return *mbarrier;
}

void report_fault(std::uint32_t pc, const Warp& warp, int lane, const std::optional<MbarrierFault>& fault) {
  if (fault) warp.launch().report_at(pc, fault->kind, warp, lane, fault->message);
}

}  // namespace jit::emulator
