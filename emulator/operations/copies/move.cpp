// mov: between registers, of addresses and special registers, packing and unpacking (PTX ISA, "Data Movement
// and Conversion Instructions: mov").
#include "operations/copies/move.h"

#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "machine/group_order.h"
#include "machine/launch.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class U>
struct CopyLanes final : Operation {
  Slot to = 0, from = 0;

  Flow execute(Warp& warp) const override {
    copy_lanes(warp.exec, lanes<U>(warp, to), static_cast<const U*>(lanes<U>(warp, from)));
    return Flow::next;
  }
};

template <class U>
Result make_copy(Decoder& decoder, Type type) {
  auto copy = std::make_unique<CopyLanes<U>>();
  copy->to = decoder.destination(0, type);
  copy->from = decoder.source(1, type);
  return copy;
}

// The clock counts the cluster's executed instructions, so that runs are reproducible; in a device group,
// %globaltimer is the group's.
struct ReadClock final : Operation {
  Slot to = 0;
  bool is_wide = false;
  bool is_global = false;
  int shift = 0;

  Flow execute(Warp& warp) const override {
    GroupClock* const clock = is_global ? warp.launch().clock : nullptr;
    if (clock) ++clock->reads;
    const U64 now = (clock ? clock->now : warp.block.cluster.steps) >> shift;
    for_each_lane(warp.exec, [&](int lane) {
      if (is_wide) {
        warp.r64(to)[lane] = now;
      } else {
        warp.r32(to)[lane] = static_cast<U32>(now);
      }
    });
    return Flow::next;
  }
};

struct ClockRegister {
  int bits;
  int shift;
};

// Decodes a special register that reads a clock; else null.
Result decode_clock(Decoder& decoder, Type type) {
  static const std::unordered_map<std::string_view, ClockRegister> clocks = {
      {"%clock", {32, 0}},       {"%clock_hi", {32, 32}},      {"%clock64", {64, 0}},
      {"%globaltimer", {64, 0}}, {"%globaltimer_lo", {32, 0}}, {"%globaltimer_hi", {32, 32}},
  };
  const ptx::Operand& source = decoder.operand(1);
  if (source.kind != ptx::Operand::Kind::name) return nullptr;
  const auto found = clocks.find(source.name);
  if (found == clocks.end()) return nullptr;
  if (found->second.bits != bits(type)) {
    decoder.fail(fmt::format("{} has {} bits", source.name, found->second.bits));
  }
  auto read = std::make_unique<ReadClock>();
  read->to = decoder.destination(0, type);
  read->is_wide = found->second.bits == 64;
  read->is_global = source.name.starts_with("%globaltimer");
  read->shift = found->second.shift;
  return read;
}

// The parts of a packed value: {low, …, high}.
const std::vector<ptx::Operand>* parts_of(const ptx::Operand& operand) {
  return operand.kind == ptx::Operand::Kind::vector ? &operand.elements : nullptr;
}

// The type of each of the parts.
Type part_type(const Decoder& decoder, Type whole, const std::vector<ptx::Operand>& parts) {
  const std::size_t count = parts.size();
  const int width = count == 0 ? 0 : bits(whole) / static_cast<int>(count);
  const bool is_known = (count == 2 && width <= 32) || (count == 4 && width <= 16);
  if (!is_known || width < 8)
    decoder.fail(fmt::format(".{} is not made of {} parts", to_string(whole), count));
  for (const ptx::Operand& part : parts) {
    const int has = decoder.register_bits(part);
    if (has != 0 && has != width) {
      decoder.fail(
          fmt::format("{} has {} bits, a part of .{} has {}", part.name, has, to_string(whole), width));
    }
  }
  return width == 8 ? Type::b8 : width == 16 ? Type::b16 : Type::b32;
}

template <class Whole, class Part, class... Parts>
Result pack_parts(Decoder& decoder, Type type, const std::vector<ptx::Operand>& parts, Parts...) {
  const Slot to = decoder.destination(0, type);
  std::size_t index = 0;
  const Operands<Whole(Part, Parts...)> operands = {to,
                                                    {decoder.source(parts[index++], ptx_type<Part>()),
                                                     decoder.source(parts[index++], ptx_type<Parts>())...}};
  return lanewise<Whole(Part, Parts...)>(operands, [](Part first, Parts... others) {
    Whole whole = first;
    int shift = 0;
    ((whole = static_cast<Whole>(whole | static_cast<Whole>(others)
                                             << (shift += 8 * static_cast<int>(sizeof(Part))))),
     ...);
    return whole;
  });
}

Result decode_pack(Decoder& decoder, Type type, const std::vector<ptx::Operand>& parts) {
  using B = std::uint8_t;
  using H = std::uint16_t;
  const Type part = part_type(decoder, type, parts);
  if (part == Type::b32) return pack_parts<U64, U32>(decoder, type, parts, U32{});
  if (part == Type::b16) {
    if (parts.size() == 2) return pack_parts<U32, H>(decoder, type, parts, H{});
    return pack_parts<U64, H>(decoder, type, parts, H{}, H{}, H{});
  }
  if (parts.size() == 2) return pack_parts<H, B>(decoder, type, parts, B{});
  return pack_parts<U32, B>(decoder, type, parts, B{}, B{}, B{});
}

template <class Whole>
struct Unpack final : Operation {
  struct Part {
    Slot to;
    int shift;
  };
  Slot from = 0;
  std::vector<Part> parts;
  U32 mask = 0;

  Flow execute(Warp& warp) const override {
    const auto loop = [](U32 exec, U32 kept, int shift, U32* to, const Unit<Whole>* whole) {
      std::array<U32, warp_lanes> results;
      for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
        results[lane] = static_cast<U32>(whole[lane] >> shift) & kept;
      }
      copy_lanes(exec, to, results.data());
    };
    // A part may use the same register as the whole.
    std::array<Unit<Whole>, warp_lanes> whole;
    std::memcpy(whole.data(), lanes<Whole>(warp, from), sizeof whole);
    for (const Part& part : parts) {
      vectorized(loop, warp.exec, mask, part.shift, warp.r32(part.to),
                 static_cast<const Unit<Whole>*>(whole.data()));
    }
    return Flow::next;
  }
};

template <class Whole>
Result make_unpack(Decoder& decoder, Type type, const std::vector<ptx::Operand>& parts) {
  const Type part = part_type(decoder, type, parts);
  auto unpack = std::make_unique<Unpack<Whole>>();
  unpack->from = decoder.source(1, type);
  unpack->mask = bits(part) == 32 ? ~0u : (1u << bits(part)) - 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == ptx::Operand::Kind::discard) continue;
    unpack->parts.push_back({decoder.destination(parts[i], part), static_cast<int>(i) * bits(part)});
  }
  return unpack;
}

Result decode_mov(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.expect_count(2);
  if (bits(type) > 64) decoder.fail("128 bits are not known to the emulator");
  if (const auto* parts = parts_of(decoder.operand(0))) {
    if (bits(type) == 64) return make_unpack<U64>(decoder, type, *parts);
    return make_unpack<U32>(decoder, type, *parts);
  }
  if (const auto* parts = parts_of(decoder.operand(1))) return decode_pack(decoder, type, *parts);
  if (Result clock = decode_clock(decoder, type)) return clock;
  if (bits(type) == 64) return make_copy<U64>(decoder, type);
  return make_copy<U32>(decoder, type);
}

}  // namespace

std::unique_ptr<const Operation> decode_move(Decoder& decoder) {
  if (Result operation = decode_address(decoder)) {
    decoder.set_class(InstructionClass::move);
    return operation;
  }
  if (decoder.opcode() != "mov" || decoder.has("pred")) return nullptr;
  decoder.set_class(InstructionClass::move);
  return decode_mov(decoder);
}

}  // namespace jit::emulator
