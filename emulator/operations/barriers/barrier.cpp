#include "operations/barriers/barrier.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "machine/decoder.h"

namespace jit::emulator {

unsigned living_threads(const Block& block) {
  const auto living =
      std::count_if(block.warps.begin(), block.warps.end(), [](const auto& warp) { return warp->alive; });
  return static_cast<unsigned>(living) * warp_lanes;
}

std::uint64_t NamedBarrier::arrive(Warp& warp, unsigned id, unsigned expected, std::uint32_t lanes_true) {
  if (expected % warp_lanes != 0) {
    warp.stop(FindingKind::barrier_misuse, -1,
              fmt::format("barrier {} is to wait for {} threads, which is no multiple of the warp size", id,
                          expected));
  }
  if (arrived_ != 0 && expected != expected_) {
    warp.stop(FindingKind::barrier_misuse, -1,
              fmt::format("barrier {} is to wait for {} threads, those that came before said {}", id,
                          expected ? fmt::format("{}", expected) : "all",
                          expected_ ? fmt::format("{}", expected_) : "all"));
  }
  id_ = id;
  expected_ = expected;
  threads_ = expected != 0 ? expected : living_threads(warp.block);
  // A warp counts as whole: its missing threads can never arrive.
  arrived_ += warp.exec == warp.alive ? warp_lanes : static_cast<unsigned>(std::popcount(warp.exec));
  if (arrived_ > threads_) {
    warp.stop(FindingKind::barrier_misuse, -1,
              fmt::format("{} threads have come to barrier {}, which waits for {}", arrived_, id, threads_));
  }
  gathering_true_ += static_cast<unsigned>(std::popcount(lanes_true & warp.exec));
  gathering_count_ += static_cast<unsigned>(std::popcount(warp.exec));
  warp.knowledge.release(warp.participants(), gathering_);
  warp.knowledge.tick();
  const std::uint64_t token = generation_;
  if (arrived_ == threads_) complete();
  return token;
}

void NamedBarrier::complete() {
  ++generation_;
  count_true_ = std::exchange(gathering_true_, 0);
  count_all_ = std::exchange(gathering_count_, 0);
  arrived_ = 0;
  released_ = std::exchange(gathering_, {});
}

void NamedBarrier::wake(Warp& warp) const {
  warp.knowledge.acquire(warp.exec, released_);
  warp.knowledge.meet(warp.participants());
}

void NamedBarrier::recheck(const Block& block) {
  if (arrived_ == 0 || expected_ != 0) return;
  threads_ = living_threads(block);
  if (arrived_ >= threads_) complete();
}

std::string NamedBarrier::describe(std::uint64_t) const {
  return fmt::format("barrier {} ({} of {} threads are there)", id_, arrived_, threads_);
}

void NamedBarriers::recheck() {
  for (NamedBarrier& barrier : barriers_) barrier.recheck(block_);
}

unsigned ClusterBarrier::threads() const {
  unsigned sum = 0;
  for (const auto& block : cluster_.blocks) sum += living_threads(*block);
  return sum;
}

void ClusterBarrier::arrive(Warp& warp, bool release) {
  const auto [arrival, is_new] = arrivals_.try_emplace(&warp, phase_);
  if (!is_new) {
    warp.stop(FindingKind::barrier_misuse, -1,
              "barrier.cluster.arrive a second time without barrier.cluster.wait between");
  }
  if (release) {
    warp.knowledge.release(warp.participants(), gathering_);
    warp.knowledge.tick();
  } else {
    for_each_lane(warp.exec, [&](int lane) {
      if (const auto fenced = warp.block.shared.sync().fenced(warp, lane)) gathering_.join(*fenced);
    });
  }
  arrived_ += warp_lanes;
  recheck();
}

void ClusterBarrier::recheck() {
  if (arrived_ == 0 || arrived_ < threads()) return;
  ++phase_;
  arrived_ = 0;
  released_ = std::exchange(gathering_, {});
}

std::uint64_t ClusterBarrier::take_arrival(Warp& warp) {
  const auto arrival = arrivals_.find(&warp);
  if (arrival == arrivals_.end()) {
    warp.stop(FindingKind::barrier_misuse, -1, "barrier.cluster.wait without barrier.cluster.arrive before");
  }
  const std::uint64_t phase = arrival->second;
  arrivals_.erase(arrival);
  waited_for_[&warp] = phase + 1;
  return phase;
}

std::uint64_t ClusterBarrier::phases_waited_for(const Warp& warp) const {
  const auto found = waited_for_.find(&warp);
  return found == waited_for_.end() ? 0 : found->second;
}

void ClusterBarrier::wake(Warp& warp) const {
  warp.knowledge.acquire(warp.exec, released_);
  warp.knowledge.meet(warp.participants());
}

std::string ClusterBarrier::describe(std::uint64_t) const {
  return fmt::format("the barrier of the cluster ({} of {} threads are there)", arrived_, threads());
}

void WarpBarrier::wake(Warp& warp) const { warp.knowledge.acquire(warp.exec, released_); }

std::uint64_t WarpBarrier::arrive(Warp& warp) {
  arrived_ |= warp.exec;
  warp.knowledge.release(warp.exec, gathering_);
  warp.knowledge.tick();
  const std::uint64_t token = generation_;
  recheck(alive_);
  return token;
}

void WarpBarrier::recheck(std::uint32_t alive) {
  alive_ = alive;
  if (arrived_ == 0 || (members_ & alive_ & ~arrived_) != 0) return;
  arrived_ = 0;
  ++generation_;
  released_ = std::exchange(gathering_, {});
}

std::string WarpBarrier::describe(std::uint64_t) const {
  return fmt::format("lanes {:#010x} of its own warp at bar.warp.sync", members_ & alive_ & ~arrived_);
}

namespace {

// The value that all lanes share; stops the launch when they differ.
std::uint32_t uniform(Warp& warp, Slot slot, const char* what) {
  const std::uint32_t* values = warp.r32(slot);
  const std::uint32_t value = values[std::countr_zero(warp.exec)];
  for_each_lane(warp.exec, [&](int lane) {
    if (values[lane] != value) {
      warp.stop(
          FindingKind::barrier_misuse, lane,
          fmt::format("{} differs among the threads of the warp: {} and {}", what, value, values[lane]));
    }
  });
  return value;
}

struct BarrierPlace {
  Slot id;
  Slot threads;
  bool all_threads;

  NamedBarrier& find(Warp& warp, unsigned& barrier_id) const {
    barrier_id = uniform(warp, id, "the barrier's number");
    if (barrier_id >= NamedBarriers::count) {
      warp.stop(FindingKind::barrier_misuse, -1,
                fmt::format("there is no barrier {}; they go from 0 to 15", barrier_id));
    }
    return warp.block.barriers->at(barrier_id);
  }
  std::uint64_t arrive(Warp& warp, std::uint32_t lanes_true, NamedBarrier*& barrier) const {
    unsigned barrier_id = 0;
    barrier = &find(warp, barrier_id);
    unsigned expected = 0;
    if (!all_threads) {
      expected = uniform(warp, threads, "the number of threads");
      if (expected == 0) {
        warp.stop(FindingKind::barrier_misuse, -1,
                  fmt::format("barrier {} is to wait for 0 threads", barrier_id));
      }
    }
    return barrier->arrive(warp, barrier_id, expected, lanes_true);
  }
};

struct BarrierSync final : Operation {
  BarrierPlace place;
  explicit BarrierSync(BarrierPlace p) : place(p) {}

  Flow execute(Warp& warp) const override {
    NamedBarrier* barrier = nullptr;
    const std::uint64_t token = place.arrive(warp, 0, barrier);
    if (!barrier->is_over(token)) return warp.wait_for(*barrier, token, false);
    barrier->wake(warp);
    return Flow::next;
  }
};

struct BarrierArrive final : Operation {
  BarrierPlace place;
  explicit BarrierArrive(BarrierPlace p) : place(p) {}

  Flow execute(Warp& warp) const override {
    NamedBarrier* barrier = nullptr;
    place.arrive(warp, 0, barrier);
    return Flow::next;
  }
};

struct BarrierReduce final : Operation {
  enum class Kind { popc, all, any };
  BarrierPlace place;
  Kind kind;
  Slot count;        // of popc
  Predicate result;  // of the others
  Decoder::PredicateSource source;
  Slot arrival;  // generation + 1 while the warp waits

  Flow execute(Warp& warp) const override {
    std::uint64_t* arrivals = warp.r64(arrival);
    const int lane = std::countr_zero(warp.exec);
    NamedBarrier* barrier = nullptr;
    if (arrivals[lane] == 0) {
      const std::uint32_t lanes_true = warp.predicate(source.predicate) ^ (source.negated ? all_lanes : 0);
      arrivals[lane] = place.arrive(warp, lanes_true, barrier) + 1;
    } else {
      unsigned id = 0;
      barrier = &place.find(warp, id);
    }
    if (!barrier->is_over(arrivals[lane] - 1)) return warp.wait_for(*barrier, arrivals[lane] - 1, true);
    arrivals[lane] = 0;
    barrier->wake(warp);
    if (kind == Kind::popc) {
      for_each_lane(warp.exec, [&](int l) { warp.r32(count)[l] = barrier->count_true(); });
    } else {
      const bool holds =
          kind == Kind::all ? barrier->count_true() == barrier->count_all() : barrier->count_true() > 0;
      warp.set_predicate(result, holds ? all_lanes : 0);
    }
    return Flow::next;
  }
};

struct WarpSync final : Operation {
  Slot members;
  explicit WarpSync(Slot m) : members(m) {}

  Flow execute(Warp& warp) const override {
    const std::uint32_t mask = uniform(warp, members, "the member mask");
    if ((warp.exec & ~mask) != 0) {
      warp.stop(FindingKind::barrier_misuse, std::countr_zero(warp.exec & ~mask),
                fmt::format("lanes {:#010x} execute it, its member mask {:#010x} leaves some out", warp.exec,
                            mask));
    }
    if ((mask & warp.alive & ~warp.exec) == 0) {
      warp.knowledge.meet(warp.participants());
      return Flow::next;
    }
    auto found = std::find_if(warp.barriers.begin(), warp.barriers.end(),
                              [&](const auto& barrier) { return barrier->members() == mask; });
    if (found == warp.barriers.end()) {
      found = warp.barriers.insert(found, std::make_unique<WarpBarrier>(mask, warp.alive));
    }
    WarpBarrier& barrier = **found;
    const std::uint64_t token = barrier.arrive(warp);
    if (!barrier.is_over(token)) return warp.wait_for(barrier, token, false);
    barrier.wake(warp);
    return Flow::next;
  }
};

struct ClusterArrive final : Operation {
  bool release;
  explicit ClusterArrive(bool r) : release(r) {}

  Flow execute(Warp& warp) const override {
    warp.block.cluster.barrier->arrive(warp, release);
    return Flow::next;
  }
};

struct ClusterWait final : Operation {
  Flow execute(Warp& warp) const override {
    ClusterBarrier& barrier = *warp.block.cluster.barrier;
    const std::uint64_t token = barrier.take_arrival(warp);
    if (!barrier.is_over(token)) return warp.wait_for(barrier, token, false);
    barrier.wake(warp);
    return Flow::next;
  }
};

std::unique_ptr<const Operation> decode_cluster(Decoder& decoder) {
  decoder.require_arch(9, 0);
  const std::string_view action = decoder.take_one_of({"arrive", "wait"});
  decoder.expect_count(0);
  // Threads without .aligned would arrive one by one, which is not modeled; CUDA's intrinsics and libraries
  // always write .aligned.
  decoder.take("aligned");
  decoder.set_aligned();
  if (action == "wait") {
    decoder.take("acquire");
    return std::make_unique<ClusterWait>();
  }
  return std::make_unique<ClusterArrive>(decoder.take_any_of({"release", "relaxed"}) != "relaxed");
}

BarrierPlace decode_place(Decoder& decoder, std::size_t first, bool has_threads) {
  const Slot id = decoder.source(first, Type::u32);
  return {id, has_threads ? decoder.source(first + 1, Type::u32) : id, !has_threads};
}

std::unique_ptr<const Operation> decode_reduce(Decoder& decoder) {
  const std::string_view kind = decoder.take_one_of({"popc", "and", "or"});
  decoder.take_one_of({"u32", "pred"});
  decoder.expect_count(3, 4);
  auto reduce = std::make_unique<BarrierReduce>();
  reduce->place = decode_place(decoder, 1, decoder.count() == 4);
  reduce->source = decoder.predicate_source(decoder.operand(decoder.count() - 1));
  reduce->arrival = decoder.scratch(Type::u64);
  reduce->kind = kind == "popc"  ? BarrierReduce::Kind::popc
                 : kind == "and" ? BarrierReduce::Kind::all
                                 : BarrierReduce::Kind::any;
  if (kind == "popc") {
    reduce->count = decoder.destination(0, Type::u32);
  } else {
    reduce->result = decoder.predicate_destination(decoder.operand(0));
  }
  return reduce;
}

}  // namespace

std::unique_ptr<const Operation> decode_barrier(Decoder& decoder) {
  if (decoder.opcode() != "bar" && decoder.opcode() != "barrier") return nullptr;
  decoder.set_class(InstructionClass::barrier);
  if (decoder.take("cluster")) return decode_cluster(decoder);
  if (decoder.take("warp")) {
    decoder.take_one_of({"sync"});
    decoder.expect_count(1);
    return std::make_unique<WarpSync>(decoder.source(0, Type::u32));
  }
  decoder.take("cta");
  const std::string_view action = decoder.take_one_of({"sync", "arrive", "red"});
  // bar is barrier.cta with .aligned.
  if (decoder.take("aligned") || decoder.opcode() == "bar") decoder.set_aligned();
  if (action == "red") return decode_reduce(decoder);
  if (action == "arrive") {
    decoder.expect_count(2);
    return std::make_unique<BarrierArrive>(decode_place(decoder, 0, true));
  }
  decoder.expect_count(1, 2);
  return std::make_unique<BarrierSync>(decode_place(decoder, 0, decoder.count() == 2));
}

}  // namespace jit::emulator
