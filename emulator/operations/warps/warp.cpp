// Instructions by which the lanes of a warp exchange values (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
// "redux.sync", "activemask", "elect.sync").
#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

// The member mask, which must be equal in all lanes.
std::uint32_t members_of(Warp& warp, Slot slot) {
  const std::uint32_t* values = warp.r32(slot);
  const std::uint32_t mask = values[std::countr_zero(warp.exec)];
  for_each_lane(warp.exec, [&](int lane) {
    if (values[lane] != mask) {
      warp.stop(
          FindingKind::illegal_instruction, lane,
          fmt::format("the member mask differs among lanes: {:#010x} and {:#010x}", mask, values[lane]));
    }
  });
  return mask;
}

/// An operation of all lanes of a member mask: `exchange` is called when all are in `warp.exec`.
struct Exchange : Operation {
  Slot members = 0;

  Flow execute(Warp& warp) const final {
    const std::uint32_t mask = members_of(warp, members);
    if (!warp.meet(mask)) return Flow::wait_then_retry;
    exchange(warp, mask & warp.exec);
    return Flow::next;
  }
  virtual void exchange(Warp& warp, std::uint32_t lanes) const = 0;
};

struct Shuffle final : Exchange {
  enum class Mode { up, down, bfly, idx };
  Mode mode;
  Slot to, from, lane_operand, clamp;
  bool has_predicate = false;
  Predicate in_range = 0;

  void exchange(Warp& warp, std::uint32_t lanes) const override {
    std::array<std::uint32_t, warp_lanes> values;
    std::copy_n(warp.r32(from), warp_lanes, values.begin());
    std::uint32_t valid = 0;
    std::uint32_t* result = warp.r32(to);
    std::array<std::uint32_t, warp_lanes> results;
    for_each_lane(lanes, [&](int lane) {
      const std::uint32_t c = warp.r32(clamp)[lane];
      const auto operand = static_cast<int>(warp.r32(lane_operand)[lane] & 31);
      const auto segment = static_cast<int>(c >> 8 & 31);
      const int last = (lane & segment) | (static_cast<int>(c & 31) & ~segment);
      const int first = lane & segment;
      int source = lane;
      bool ok = false;
      switch (mode) {
        case Mode::up:
          source = lane - operand;
          ok = source >= last;
          break;
        case Mode::down:
          source = lane + operand;
          ok = source <= last;
          break;
        case Mode::bfly:
          source = lane ^ operand;
          ok = source <= last;
          break;
        case Mode::idx:
          source = first | (operand & ~segment);
          ok = source <= last;
          break;
      }
      if (!ok) source = lane;
      if ((lanes >> source & 1) == 0) {
        warp.report(
            FindingKind::illegal_instruction, lane,
            fmt::format("reads lane {}, which does not take part (lanes {:#010x} do)", source, lanes));
      }
      results[static_cast<std::size_t>(lane)] = values[static_cast<std::size_t>(source)];
      valid |= static_cast<std::uint32_t>(ok) << lane;
    });
    for_each_lane(lanes, [&](int lane) { result[lane] = results[static_cast<std::size_t>(lane)]; });
    if (has_predicate) warp.set_predicate(in_range, valid);
  }
};

struct Vote final : Exchange {
  enum class Mode { all, any, uni, ballot };
  Mode mode;
  Decoder::PredicateSource source;
  Slot mask_result = 0;
  Predicate result = 0;

  void exchange(Warp& warp, std::uint32_t lanes) const override {
    const std::uint32_t ayes = (warp.predicate(source.predicate) ^ (source.negated ? all_lanes : 0)) & lanes;
    switch (mode) {
      case Mode::all:
        return warp.set_predicate(result, ayes == lanes ? all_lanes : 0);
      case Mode::any:
        return warp.set_predicate(result, ayes != 0 ? all_lanes : 0);
      case Mode::uni:
        return warp.set_predicate(result, ayes == 0 || ayes == lanes ? all_lanes : 0);
      case Mode::ballot:
        for_each_lane(lanes, [&](int lane) { warp.r32(mask_result)[lane] = ayes; });
    }
  }
};

struct Match final : Exchange {
  bool wide;
  bool all;
  Slot result, source;
  bool has_predicate = false;
  Predicate same = 0;

  void exchange(Warp& warp, std::uint32_t lanes) const override {
    const auto value = [&](int lane) -> std::uint64_t {
      return wide ? warp.r64(source)[lane] : warp.r32(source)[lane];
    };
    std::array<std::uint32_t, warp_lanes> equal{};
    for_each_lane(lanes, [&](int lane) {
      for_each_lane(lanes, [&](int other) {
        if (value(lane) == value(other)) equal[static_cast<std::size_t>(lane)] |= 1u << other;
      });
    });
    const bool all_equal = equal[static_cast<std::size_t>(std::countr_zero(lanes))] == lanes;
    for_each_lane(lanes, [&](int lane) {
      warp.r32(result)[lane] = !all ? equal[static_cast<std::size_t>(lane)] : all_equal ? lanes : 0;
    });
    if (has_predicate) warp.set_predicate(same, all_equal ? all_lanes : 0);
  }
};

struct Reduce final : Exchange {
  using Function = std::uint32_t (*)(std::uint32_t, std::uint32_t);
  Function combine;
  Slot result, source;

  void exchange(Warp& warp, std::uint32_t lanes) const override {
    const std::uint32_t* values = warp.r32(source);
    const int first = std::countr_zero(lanes);
    std::uint32_t sum = values[first];
    for_each_lane(lanes & (lanes - 1), [&](int lane) { sum = combine(sum, values[lane]); });
    for_each_lane(lanes, [&](int lane) { warp.r32(result)[lane] = sum; });
  }
};

struct ActiveMask final : Operation {
  Slot result;
  explicit ActiveMask(Slot r) : result(r) {}

  Flow execute(Warp& warp) const override {
    for_each_lane(warp.exec, [&](int lane) { warp.r32(result)[lane] = warp.exec; });
    return Flow::next;
  }
};

struct Elect final : Exchange {
  Slot leader;
  Predicate is_leader;

  void exchange(Warp& warp, std::uint32_t lanes) const override {
    const int first = std::countr_zero(lanes);
    for_each_lane(lanes, [&](int lane) { warp.r32(leader)[lane] = static_cast<std::uint32_t>(first); });
    warp.set_predicate(is_leader, 1u << first);
  }
};

std::unique_ptr<const Operation> decode_shuffle(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  auto shuffle = std::make_unique<Shuffle>();
  const std::string_view mode = decoder.take_one_of({"up", "down", "bfly", "idx"});
  shuffle->mode = mode == "up"     ? Shuffle::Mode::up
                  : mode == "down" ? Shuffle::Mode::down
                  : mode == "bfly" ? Shuffle::Mode::bfly
                                   : Shuffle::Mode::idx;
  decoder.take_one_of({"b32"});
  decoder.expect_count(5);
  const ptx::Operand& to = decoder.operand(0);
  shuffle->has_predicate = to.kind == ptx::Operand::Kind::pair;
  if (shuffle->has_predicate) {
    shuffle->to = decoder.destination(to.elements[0], Type::b32);
    shuffle->in_range = decoder.predicate_destination(to.elements[1]);
  } else {
    shuffle->to = decoder.destination(to, Type::b32);
  }
  shuffle->from = decoder.source(1, Type::b32);
  shuffle->lane_operand = decoder.source(2, Type::b32);
  shuffle->clamp = decoder.source(3, Type::b32);
  shuffle->members = decoder.source(4, Type::b32);
  return shuffle;
}

std::unique_ptr<const Operation> decode_vote(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  auto vote = std::make_unique<Vote>();
  const std::string_view mode = decoder.take_one_of({"all", "any", "uni", "ballot"});
  decoder.expect_count(3);
  if (mode == "ballot") {
    decoder.take_one_of({"b32"});
    vote->mode = Vote::Mode::ballot;
    vote->mask_result = decoder.destination(0, Type::b32);
  } else {
    decoder.take_one_of({"pred"});
    vote->mode = mode == "all" ? Vote::Mode::all : mode == "any" ? Vote::Mode::any : Vote::Mode::uni;
    vote->result = decoder.predicate_destination(decoder.operand(0));
  }
  vote->source = decoder.predicate_source(decoder.operand(1));
  vote->members = decoder.source(2, Type::b32);
  return vote;
}

std::unique_ptr<const Operation> decode_match(Decoder& decoder) {
  auto match = std::make_unique<Match>();
  match->all = decoder.take_one_of({"any", "all"}) == "all";
  decoder.take_one_of({"sync"});
  match->wide = decoder.take_one_of({"b32", "b64"}) == "b64";
  decoder.expect_count(3);
  const ptx::Operand& to = decoder.operand(0);
  match->has_predicate = to.kind == ptx::Operand::Kind::pair;
  if (match->has_predicate) {
    if (!match->all) decoder.fail("only match.all has a predicate");
    match->same = decoder.predicate_destination(to.elements[1]);
  }
  match->result = decoder.destination(match->has_predicate ? to.elements[0] : to, Type::b32);
  match->source = decoder.source(1, match->wide ? Type::b64 : Type::b32);
  match->members = decoder.source(2, Type::b32);
  return match;
}

// The combining function of redux.sync; null: none has this name for the type.
Reduce::Function combination(std::string_view name, Type type) {
  using U = std::uint32_t;
  if (name == "and") return [](U a, U b) { return a & b; };
  if (name == "or") return [](U a, U b) { return a | b; };
  if (name == "xor") return [](U a, U b) { return a ^ b; };
  if (name == "add") return [](U a, U b) { return a + b; };
  using S = std::int32_t;
  if (is_signed(type)) {
    if (name == "min") return [](U a, U b) { return static_cast<S>(a) < static_cast<S>(b) ? a : b; };
    return [](U a, U b) { return static_cast<S>(a) < static_cast<S>(b) ? b : a; };
  }
  if (name == "min") return [](U a, U b) { return std::min(a, b); };
  return [](U a, U b) { return std::max(a, b); };
}

std::unique_ptr<const Operation> decode_reduce(Decoder& decoder) {
  decoder.take_one_of({"sync"});
  const std::string_view name = decoder.take_one_of({"add", "min", "max", "and", "or", "xor"});
  const Type type = decoder.take_type();
  if (type != Type::u32 && type != Type::s32 && type != Type::b32) decoder.fail("takes .u32, .s32 or .b32");
  decoder.expect_count(3);
  auto reduce = std::make_unique<Reduce>();
  reduce->combine = combination(name, type);
  reduce->result = decoder.destination(0, type);
  reduce->source = decoder.source(1, type);
  reduce->members = decoder.source(2, Type::b32);
  return reduce;
}

std::unique_ptr<const Operation> decode_elect(Decoder& decoder) {
  decoder.require_arch(9, 0);
  decoder.take_one_of({"sync"});
  decoder.expect_count(2);
  const ptx::Operand& to = decoder.operand(0);
  if (to.kind != ptx::Operand::Kind::pair) decoder.fail("takes two destinations, d|p");
  auto elect = std::make_unique<Elect>();
  elect->leader = decoder.destination(to.elements[0], Type::b32);
  elect->is_leader = decoder.predicate_destination(to.elements[1]);
  elect->members = decoder.source(1, Type::b32);
  return elect;
}

}  // namespace

std::unique_ptr<const Operation> decode_warp(Decoder& decoder) {
  const std::string_view opcode = decoder.opcode();
  const bool is_ours = opcode == "shfl" || opcode == "vote" || opcode == "match" || opcode == "redux" ||
                       opcode == "activemask" || opcode == "elect";
  if (!is_ours) return nullptr;
  decoder.set_class(InstructionClass::warp_exchange);
  if (opcode == "shfl") return decode_shuffle(decoder);
  if (opcode == "vote") return decode_vote(decoder);
  if (opcode == "match") return decode_match(decoder);
  if (opcode == "redux") return decode_reduce(decoder);
  if (opcode == "elect") return decode_elect(decoder);
  decoder.take_one_of({"b32"});
  decoder.expect_count(1);
  return std::make_unique<ActiveMask>(decoder.destination(0, Type::b32));
}

}  // namespace jit::emulator
