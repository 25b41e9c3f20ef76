// The instructions on mbarriers, except waits and the arrival that follows cp.async (PTX ISA, "Parallel
// Synchronization and Communication Instructions: mbarrier").
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "operations/barriers/mbarrier.h"
#include "operations/barriers/mbarrier_wait.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {
namespace {

// The blocks whose mbarriers an instruction may use.
enum class Reach { block, cluster };

// The state space, when one is named; else the address is generic.
bool take_is_generic(Decoder& decoder, Reach reach) {
  if (reach == Reach::cluster && decoder.take("shared::cluster")) return false;
  return decoder.take_any_of({"shared::cta", "shared"}).empty();
}

// Takes .sem and .scope. Scopes make no difference, since one host thread runs a whole cluster. Returns
// whether the instruction orders memory.
bool take_is_ordered(Decoder& decoder, std::string_view ordered) {
  const bool is_relaxed = decoder.take("relaxed");
  const bool names_order = !is_relaxed && decoder.take(ordered);
  const bool has_scope = !decoder.take_any_of({"cta", "cluster"}).empty();
  if (is_relaxed && !has_scope) decoder.fail("relaxed needs a scope, .cta or .cluster");
  if (has_scope && !is_relaxed && !names_order) {
    decoder.fail(fmt::format("a scope needs .{} or .relaxed before it", ordered));
  }
  return !is_relaxed;
}

void require_own_block(Warp& warp, int lane, const SharedPlace& place, const char* what) {
  if (place.block == &warp.block) return;
  warp.stop(FindingKind::barrier_misuse, lane,
            fmt::format("{} works on mbarriers of the own block only, this one is of block {} of the cluster",
                        what, place.block->rank));
}

struct InitMbarrier final : Operation {
  SharedOperand at;
  Slot count;

  Flow execute(Warp& warp) const override {
    for_each_lane(once(warp), [&](int lane) {
      const SharedPlace place = at.place(warp, lane);
      require_own_block(warp, lane, place, "mbarrier.init");
      const std::uint32_t arrivals = warp.r32(count)[lane];
      if (place.offset % 8 != 0) {
        warp.stop(FindingKind::barrier_misuse, lane,
                  fmt::format("mbarrier.init at byte {} of shared memory: an mbarrier needs a multiple of 8",
                              place.offset));
      }
      if (arrivals < 1 || arrivals > mbarrier_limit) {
        warp.stop(
            FindingKind::barrier_misuse, lane,
            fmt::format("mbarrier.init with {} arrivals: 1 to {} are possible", arrivals, mbarrier_limit));
      }
      Block& block = *place.block;
      if (const Mbarrier* before = block.mbarriers->find(place.offset)) {
        warp.report(FindingKind::barrier_misuse, lane,
                    fmt::format("mbarrier.init of {} again, without mbarrier.inval between", before->name()));
      }
      block.shared.set_mbarrier(place.offset, false);
      const Access access = warp.access(lane);
      std::memset(block.shared.write(access, place.offset, 8), 0, 8);
      block.shared.set_mbarrier(place.offset, true);
      block.mbarriers->make(block, place.offset).init(arrivals, access);
    });
    warp.count().shared_write_bytes += 8 * static_cast<std::uint64_t>(std::popcount(warp.exec));
    return Flow::next;
  }

 private:
  // Lanes that initialize: at Level::silicon, one of those with the same address and count.
  std::uint32_t once(Warp& warp) const {
    if (warp.launch().options.level == Level::strict) return warp.exec;
    std::uint32_t lanes = warp.exec;
    for_each_lane(warp.exec, [&](int lane) {
      const SharedPlace place = at.place(warp, lane);
      for_each_lane(lanes & ((1u << lane) - 1), [&](int earlier) {
        const SharedPlace other = at.place(warp, earlier);
        const bool is_same = other.block == place.block && other.offset == place.offset &&
                             warp.r32(count)[earlier] == warp.r32(count)[lane];
        if (is_same) lanes &= ~(1u << lane);
      });
    });
    return lanes;
  }
};

struct InvalidateMbarrier final : Operation {
  SharedOperand at;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const SharedPlace place = at.place(warp, lane);
      require_own_block(warp, lane, place, "mbarrier.inval");
      Mbarrier& mbarrier = use_mbarrier(warp, lane, place, "mbarrier.inval of");
      if (mbarrier.missing_bytes() != 0) {
        warp.report(FindingKind::barrier_misuse, lane,
                    fmt::format("mbarrier.inval of {} while it waits for {} bytes", mbarrier.name(),
                                mbarrier.missing_bytes()));
      }
      if (is_waited_for(warp.block, mbarrier)) {
        warp.report(FindingKind::barrier_misuse, lane,
                    fmt::format("mbarrier.inval of {} while a warp waits for it", mbarrier.name()));
      } else if (warp.launch().options.check_races && !mbarrier.is_quiet_for(warp, lane)) {
        warp.report(
            FindingKind::data_race, lane,
            fmt::format("mbarrier.inval of {}, which another thread has waited for with nothing to order the "
                        "two: a barrier is missing before it",
                        mbarrier.name()));
      }
      mbarrier.invalidate();
      SharedMemory& shared = place.block->shared;
      shared.set_mbarrier(place.offset, false);
      std::memset(shared.write(warp.access(lane), place.offset, 8), 0xff, 8);
    });
    return Flow::next;
  }
};

struct ArriveAtMbarrier final : Operation {
  SharedOperand at;
  std::optional<Slot> state;  // destination of the state
  Slot count;
  std::optional<Slot> bytes;  // of .expect_tx
  bool releases, is_drop, completes_nothing;

  Flow execute(Warp& warp) const override {
    std::array<Mbarrier*, warp_lanes> mbarriers;
    for_each_lane(warp.exec, [&](int lane) {
      const SharedPlace place = at.place(warp, lane);
      if (state) require_own_block(warp, lane, place, "an arrival that returns the state");
      mbarriers[static_cast<std::size_t>(lane)] = &use_mbarrier(warp, lane, place, "arrives at");
    });
    for_each_mbarrier(warp.exec, mbarriers, [&](Mbarrier& mbarrier, std::uint32_t lanes) {
      while (lanes != 0) {
        const std::uint32_t now = within_phase(warp, mbarrier, lanes);
        arrive(warp, mbarrier, now);
        lanes &= ~now;
      }
    });
    if (releases) warp.knowledge.tick();
    return Flow::next;
  }

 private:
  // The first of `lanes` that fit the phase's pending count: their releases have the same waiters.
  std::uint32_t within_phase(Warp& warp, const Mbarrier& mbarrier, std::uint32_t lanes) const {
    std::uint64_t arrivals = 0;
    std::uint32_t fitting = 0;
    for_each_lane(lanes, [&](int lane) {
      arrivals += warp.r32(count)[lane];
      if (fitting == 0 || arrivals <= mbarrier.pending()) fitting |= 1u << lane;
    });
    return fitting;
  }

  void arrive(Warp& warp, Mbarrier& mbarrier, std::uint32_t lanes) const {
    Knowledge released;
    if (releases) warp.knowledge.release(lanes, released);
    const Knowledge* knowledge = releases ? &released : nullptr;
    for_each_lane(lanes, [&](int lane) {
      if (state) warp.r64(*state)[lane] = mbarrier.state();
      const std::uint32_t arrivals = warp.r32(count)[lane];
      if (bytes) report_fault(warp.pc, warp, lane, mbarrier.expect_transaction(warp.r32(*bytes)[lane]));
      if (is_drop) report_fault(warp.pc, warp, lane, mbarrier.drop(arrivals));
      if (completes_nothing && mbarrier.pending() == arrivals) {
        warp.report(FindingKind::barrier_misuse, lane,
                    fmt::format("an arrival with .noComplete is the last that phase of {} waits for",
                                mbarrier.name()));
      }
      report_fault(warp.pc, warp, lane, mbarrier.arrive(arrivals, std::exchange(knowledge, nullptr)));
    });
  }
};

struct CountTransaction final : Operation {
  SharedOperand at;
  Slot bytes;
  bool completes;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      Mbarrier& mbarrier = use_mbarrier(warp, lane, at.place(warp, lane),
                                        completes ? "mbarrier.complete_tx at" : "mbarrier.expect_tx at");
      const std::uint32_t amount = warp.r32(bytes)[lane];
      report_fault(warp.pc, warp, lane,
                   completes ? mbarrier.complete_transaction(amount) : mbarrier.expect_transaction(amount));
    });
    return Flow::next;
  }
};

struct PendingCount final : Operation {
  Slot count, state;

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) {
      const std::uint64_t value = warp.r64(state)[lane];
      if (!Mbarrier::is_state(value)) {
        warp.report(FindingKind::barrier_misuse, lane,
                    fmt::format("{:#018x} is no state that an arrival at an mbarrier returned", value));
      }
      warp.r32(count)[lane] = Mbarrier::pending_count(value);
    });
    return Flow::next;
  }
};

std::unique_ptr<const Operation> decode_arrival(Decoder& decoder, bool is_drop) {
  auto operation = std::make_unique<ArriveAtMbarrier>();
  operation->is_drop = is_drop;
  const bool expects = decoder.take("expect_tx");
  operation->completes_nothing = decoder.take("noComplete");
  if (expects && operation->completes_nothing) decoder.fail(".expect_tx and .noComplete exclude each other");
  operation->releases = take_is_ordered(decoder, "release");
  const bool discards = decoder.operand(0).kind == ptx::Operand::Kind::discard;
  if (expects || decoder.has("shared::cluster")) decoder.require_arch(9, 0);
  if (decoder.has("shared::cluster") && !discards) {
    decoder.fail("an arrival at an mbarrier in .shared::cluster returns no state: write _ instead");
  }
  const bool is_generic = take_is_generic(decoder, Reach::cluster);
  decoder.take("b64");
  if (expects || operation->completes_nothing) {
    decoder.expect_count(3);
  } else {
    decoder.expect_count(2, 3);
  }
  if (!discards) operation->state = decoder.destination(0, Type::b64);
  operation->at = shared_operand(decoder, 1, is_generic);
  if (expects) {
    operation->bytes = decoder.source(2, Type::u32);
    operation->count = decoder.constant(1, Type::u32);
  } else {
    operation->count = decoder.count() == 3 ? decoder.source(2, Type::u32) : decoder.constant(1, Type::u32);
  }
  return operation;
}

std::unique_ptr<const Operation> decode_transaction(Decoder& decoder, bool completes) {
  decoder.require_arch(9, 0);
  auto operation = std::make_unique<CountTransaction>();
  operation->completes = completes;
  decoder.take("relaxed");
  decoder.take_any_of({"cta", "cluster"});
  const bool is_generic = take_is_generic(decoder, Reach::cluster);
  decoder.take("b64");
  decoder.expect_count(2);
  operation->at = shared_operand(decoder, 0, is_generic);
  operation->bytes = decoder.source(1, Type::u32);
  return operation;
}

std::unique_ptr<const Operation> decode_wait(Decoder& decoder, bool suspends) {
  if (suspends) decoder.require_arch(9, 0);
  const bool by_parity = decoder.take("parity");
  const bool acquires = take_is_ordered(decoder, "acquire");
  const bool is_generic = take_is_generic(decoder, Reach::block);
  decoder.take("b64");
  decoder.expect_count(3, suspends ? 4 : 3);
  auto operation = std::make_unique<WaitForMbarrier>();
  operation->result = decoder.predicate_destination(decoder.operand(0));
  operation->at = shared_operand(decoder, 1, is_generic);
  operation->by_parity = by_parity;
  operation->phase = decoder.source(2, by_parity ? Type::u32 : Type::b64);
  // The suspend-time hint is ignored, since time is not modeled.
  if (decoder.count() == 4) decoder.source(3, Type::u32);
  operation->acquires = acquires;
  operation->suspends = suspends;
  return operation;
}

std::unique_ptr<const Operation> decode_init(Decoder& decoder) {
  auto operation = std::make_unique<InitMbarrier>();
  const bool is_generic = take_is_generic(decoder, Reach::block);
  decoder.take("b64");
  decoder.expect_count(2);
  operation->at = shared_operand(decoder, 0, is_generic);
  operation->count = decoder.source(1, Type::u32);
  return operation;
}

std::unique_ptr<const Operation> decode_inval(Decoder& decoder) {
  auto operation = std::make_unique<InvalidateMbarrier>();
  const bool is_generic = take_is_generic(decoder, Reach::block);
  decoder.take("b64");
  decoder.expect_count(1);
  operation->at = shared_operand(decoder, 0, is_generic);
  return operation;
}

std::unique_ptr<const Operation> decode_pending_count(Decoder& decoder) {
  auto operation = std::make_unique<PendingCount>();
  decoder.take("b64");
  decoder.expect_count(2);
  operation->count = decoder.destination(0, Type::u32);
  operation->state = decoder.source(1, Type::b64);
  return operation;
}

}  // namespace

std::unique_ptr<const Operation> decode_mbarrier(Decoder& decoder) {
  const bool tracks_copies = decoder.opcode() == "cp" && decoder.has("async") && decoder.has("mbarrier");
  if (decoder.opcode() != "mbarrier" && !tracks_copies) return nullptr;
  decoder.require_arch(8, 0);
  decoder.set_class(InstructionClass::barrier);
  if (tracks_copies) return decode_arrival_after_copies(decoder);
  const std::string what = decoder.take_next();
  if (what == "init") return decode_init(decoder);
  if (what == "inval") return decode_inval(decoder);
  if (what == "arrive") return decode_arrival(decoder, false);
  if (what == "arrive_drop") return decode_arrival(decoder, true);
  if (what == "expect_tx") return decode_transaction(decoder, false);
  if (what == "complete_tx") return decode_transaction(decoder, true);
  if (what == "test_wait") return decode_wait(decoder, false);
  if (what == "try_wait") return decode_wait(decoder, true);
  if (what == "pending_count") return decode_pending_count(decoder);
  decoder.fail(
      fmt::format("mbarrier.{} is not known; init, inval, arrive, arrive_drop, expect_tx, complete_tx, "
                  "test_wait, try_wait and pending_count are",
                  what));
}

}  // namespace jit::emulator
