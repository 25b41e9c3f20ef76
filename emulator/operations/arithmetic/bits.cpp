// Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions", the bit instructions among "Integer
// Arithmetic Instructions", and "Data Movement and Conversion Instructions: prmt").
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "operations/arithmetic/integer.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

// Calls f(U{}) for the unsigned type with a type's width.
template <class F>
Result with_bits(Decoder& decoder, F f) {
  const Type type = decoder.take_type();
  switch (type) {
    case Type::b16:
      return f(std::uint16_t{});
    case Type::b32:
      return f(U32{});
    case Type::b64:
      return f(U64{});
    default:
      decoder.fail(fmt::format("type .{} is not one of .b16, .b32, .b64", to_string(type)));
  }
}

// Operations on types of at least 32 bits, regardless of sign.
template <class F>
Result with_words(Decoder& decoder, F f) {
  const Type type = decoder.take_type();
  if (bits(type) == 32 && !is_float(type)) return f(U32{});
  if (bits(type) == 64 && !is_float(type)) return f(U64{});
  decoder.fail(fmt::format("type .{} is not of 32 or 64 bits", to_string(type)));
}

template <class F>
Result logic(Decoder& decoder, F f) {
  return with_bits(decoder, [&]<class U>(U) {
    return lanewise<U(U, U)>(decoder, [f](U a, U b) { return static_cast<U>(f(a, b)); });
  });
}

Result decode_and(Decoder& decoder) {
  return logic(decoder, [](auto a, auto b) { return a & b; });
}
Result decode_or(Decoder& decoder) {
  return logic(decoder, [](auto a, auto b) { return a | b; });
}
Result decode_xor(Decoder& decoder) {
  return logic(decoder, [](auto a, auto b) { return a ^ b; });
}
Result decode_not(Decoder& decoder) {
  return with_bits(
      decoder, [&]<class U>(U) { return lanewise<U(U)>(decoder, [](U a) { return static_cast<U>(~a); }); });
}
Result decode_cnot(Decoder& decoder) {
  return with_bits(decoder, [&]<class U>(U) {
    return lanewise<U(U)>(decoder, [](U a) { return static_cast<U>(a == 0); });
  });
}

Result decode_shl(Decoder& decoder) {
  return with_bits(decoder, [&]<class U>(U) {
    return lanewise<U(U, U32)>(decoder, [](U a, U32 count) {
      constexpr U32 width = 8 * sizeof(U);
      const auto shifted = static_cast<U>(Wrapping<U>{a} << (count % (8 * sizeof(Wrapping<U>))));
      return count < width ? shifted : U{0};
    });
  });
}

Result decode_shr(Decoder& decoder) {
  const auto logical = [&]<class U>(U) {
    return lanewise<U(U, U32)>(decoder, [](U a, U32 count) {
      constexpr U32 width = 8 * sizeof(U);
      return count < width ? static_cast<U>(a >> (count % width)) : U{0};
    });
  };
  const auto arithmetic = [&]<class S>(S) {
    return lanewise<S(S, U32)>(decoder, [](S a, U32 count) {
      constexpr U32 last = 8 * sizeof(S) - 1;
      return static_cast<S>(a >> (count < last ? count : last));
    });
  };
  const Type type = decoder.take_type();
  switch (type) {
    case Type::s16:
      return arithmetic(std::int16_t{});
    case Type::s32:
      return arithmetic(std::int32_t{});
    case Type::s64:
      return arithmetic(std::int64_t{});
    case Type::b16:
    case Type::u16:
      return logical(std::uint16_t{});
    case Type::b32:
    case Type::u32:
      return logical(U32{});
    case Type::b64:
    case Type::u64:
      return logical(U64{});
    default:
      decoder.fail(fmt::format("type .{} cannot be shifted", to_string(type)));
  }
}

Result decode_shf(Decoder& decoder) {
  const bool left = decoder.take_one_of({"l", "r"}) == "l";
  const bool wraps = decoder.take_one_of({"wrap", "clamp"}) == "wrap";
  if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
  return lanewise<U32(U32, U32, U32)>(decoder, [left, wraps](U32 low, U32 high, U32 count) {
    const U32 by = wraps ? count & 31 : (count < 32 ? count : 32);
    const U64 both = U64{high} << 32 | low;
    return static_cast<U32>(left ? both << by >> 32 : both >> by);
  });
}

struct LogicTable {
  // The results of a lookup table of three inputs, as masks: outputs[4a + 2b + c].
  explicit LogicTable(std::int64_t table) {
    for (std::size_t i = 0; i < 8; ++i) outputs[i] = (table >> i & 1) != 0 ? ~0u : 0u;
  }
  static U32 choose(U32 by, U32 one, U32 zero) { return zero ^ ((zero ^ one) & by); }
  U32 operator()(U32 a, U32 b, U32 c) const {
    const U32 without_a = choose(b, choose(c, outputs[3], outputs[2]), choose(c, outputs[1], outputs[0]));
    const U32 with_a = choose(b, choose(c, outputs[7], outputs[6]), choose(c, outputs[5], outputs[4]));
    return choose(a, with_a, without_a);
  }
  std::array<U32, 8> outputs{};
};

// lop3 with a second result: the predicate (d ≠ 0) combined with q.
struct Lop3WithPredicate final : Operation {
  explicit Lop3WithPredicate(const LogicTable& f) : table(f) {}

  LogicTable table;
  Slot to = 0;
  Predicate predicate = 0;
  std::array<Slot, 3> from = {};
  Decoder::PredicateSource other{};
  bool is_or = false;

  Flow execute(Warp& warp) const override {
    const U32 q = other.negated ? ~warp.predicate(other.predicate) : warp.predicate(other.predicate);
    U32 is_set = 0;
    for_each_lane(warp.exec, [&](int lane) {
      const U32 result = table(warp.r32(from[0])[lane], warp.r32(from[1])[lane], warp.r32(from[2])[lane]);
      warp.r32(to)[lane] = result;
      is_set |= U32{result != 0} << lane;
    });
    warp.set_predicate(predicate, is_or ? is_set | q : is_set & q);
    return Flow::next;
  }
};

Result decode_lop3(Decoder& decoder) {
  const std::string_view combine = decoder.take_any_of({"or", "and"});
  if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
  decoder.expect_count(combine.empty() ? 5 : 6);
  const std::int64_t table = decoder.immediate(4);
  if (table < 0 || table > 255) decoder.fail(fmt::format("immLut {} is not from 0 to 255", table));
  if (combine.empty()) {
    const Slot to = decoder.destination(0, Type::b32);
    return lanewise<U32(U32, U32, U32)>(
        {to, {decoder.source(1, Type::b32), decoder.source(2, Type::b32), decoder.source(3, Type::b32)}},
        LogicTable(table));
  }
  const ptx::Operand& results = decoder.operand(0);
  if (results.kind != ptx::Operand::Kind::pair || results.elements.size() != 2) {
    decoder.fail("with .and or .or the destination is a pair d|p");
  }
  auto operation = std::make_unique<Lop3WithPredicate>(LogicTable(table));
  operation->to = decoder.destination(results.elements[0], Type::b32);
  operation->predicate = decoder.predicate_destination(results.elements[1]);
  for (std::size_t i = 0; i < 3; ++i) operation->from[i] = decoder.source(i + 1, Type::b32);
  operation->other = decoder.predicate_source(decoder.operand(5));
  operation->is_or = combine == "or";
  return operation;
}

Result decode_popc(Decoder& decoder) {
  return with_words(decoder, [&]<class U>(U) {
    return lane_by_lane<U32(U)>(decoder, [](U a) { return static_cast<U32>(std::popcount(a)); });
  });
}

Result decode_clz(Decoder& decoder) {
  return with_words(decoder, [&]<class U>(U) {
    return lane_by_lane<U32(U)>(decoder, [](U a) { return static_cast<U32>(std::countl_zero(a)); });
  });
}

template <class U>
U reversed(U a) {
  U result = 0;
  for (std::size_t i = 0; i < 8 * sizeof(U); ++i) result |= (a >> i & 1) << (8 * sizeof(U) - 1 - i);
  return result;
}

Result decode_brev(Decoder& decoder) {
  return with_words(decoder,
                    [&]<class U>(U) { return lane_by_lane<U(U)>(decoder, [](U a) { return reversed(a); }); });
}

Result decode_bfind(Decoder& decoder) {
  const bool gives_shift = decoder.take("shiftamt");
  const auto type = last_type(decoder);
  const bool has_sign = type && is_signed(*type);
  return with_words(decoder, [&]<class U>(U) {
    return lane_by_lane<U32(U)>(decoder, [gives_shift, has_sign](U a) {
      constexpr int last = 8 * sizeof(U) - 1;
      if (has_sign && (a >> last) != 0) a = ~a;
      if (a == 0) return ~0u;
      const int shift = std::countl_zero(a);
      return static_cast<U32>(gives_shift ? shift : last - shift);
    });
  });
}

// The n-th set bit from `base`: upwards for a positive offset, downwards for a negative one.
constexpr auto find_nth_set = [](U32 mask, U32 base, std::int32_t offset) {
  if (offset == std::numeric_limits<std::int32_t>::min()) return 0u;  // as on an H200
  if (base > 31) return ~0u;
  if (offset == 0) return (mask >> base & 1) != 0 ? base : ~0u;
  const int step = offset < 0 ? -1 : 1;
  int left = std::abs(offset);
  for (int at = static_cast<int>(base); at >= 0 && at <= 31; at += step) {
    if ((mask >> at & 1) != 0 && --left == 0) return static_cast<U32>(at);
  }
  return ~0u;
};

Result decode_fns(Decoder& decoder) {
  if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
  return lane_by_lane<U32(U32, U32, std::int32_t)>(decoder, find_nth_set);
}

// `length` ones from bit 0.
template <class U>
U low_ones(U32 length) {
  constexpr U32 width = 8 * sizeof(U);
  return length >= width ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << (length % width)) - 1);
}

// Effective bits of a position or length: the low 8, except that hardware uses all for 64-bit words.
template <class U>
constexpr U32 field_bits = sizeof(U) == 4 ? 0xff : ~0u;

template <class U>
U extract_field(U a, U32 position, U32 length, bool has_sign) {
  constexpr U32 width = 8 * sizeof(U);
  position &= field_bits<U>;
  length &= field_bits<U>;
  const U mask = low_ones<U>(length);
  const U field = position < width ? (a >> (position % width)) & mask : 0;
  const U64 last = U64{position} + length - 1;  // of the field; the sign bit when that lies beyond the word
  const U64 sign_at = last < width - 1 ? last : width - 1;
  if (!has_sign || length == 0 || (a >> sign_at & 1) == 0) return field;
  const U inside = low_ones<U>(position < width ? std::min(length, width - position) : 0);
  return field | static_cast<U>(~inside);
}

Result decode_bfe(Decoder& decoder) {
  const auto type = last_type(decoder);
  const bool has_sign = type && is_signed(*type);
  return with_words(decoder, [&]<class U>(U) {
    return lane_by_lane<U(U, U32, U32)>(decoder, [has_sign](U a, U32 position, U32 length) {
      return extract_field(a, position, length, has_sign);
    });
  });
}

Result decode_bfi(Decoder& decoder) {
  return with_words(decoder, [&]<class U>(U) {
    return lanewise<U(U, U, U32, U32)>(decoder, [](U field, U into, U32 position, U32 length) {
      constexpr U32 width = 8 * sizeof(U);
      position &= field_bits<U>;
      const U mask = position < width ? low_ones<U>(length & field_bits<U>) << (position % width) : 0;
      return (into & ~mask) | (field << (position % width) & mask);
    });
  });
}

Result decode_bmsk(Decoder& decoder) {
  const bool clamps = decoder.take_one_of({"clamp", "wrap"}) == "clamp";
  if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
  return lanewise<U32(U32, U32)>(decoder, [clamps](U32 position, U32 length) {
    const U32 from = clamps && position >= 32 ? 0 : ~0u << (position & 31);
    const U32 end = (position & 31) + (length & 31);
    const bool overflows = end >= 32 || (clamps && (position >= 32 || length >= 32));
    const U32 beyond = overflows ? 0 : ~0u << (end & 31);
    return from & ~beyond;
  });
}

Result decode_szext(Decoder& decoder) {
  const bool clamps = decoder.take_one_of({"clamp", "wrap"}) == "clamp";
  const Type type = decoder.take_type();
  if (type != Type::u32 && type != Type::s32) decoder.fail("is defined for .u32 and .s32");
  const bool has_sign = type == Type::s32;
  return lanewise<U32(U32, U32)>(decoder, [clamps, has_sign](U32 a, U32 length) {
    const U32 kept = length & 31;
    const U32 beyond = clamps && length >= 32 ? 0 : ~0u << kept;
    const bool is_negative = has_sign && kept != 0 && (a >> ((kept - 1) & 31) & 1) != 0;
    return (a & ~beyond) | (is_negative ? beyond : 0);
  });
}

// Byte selection of prmt: four bits of `selector` per byte in the general form; in named forms, the bytes for
// its two low bits, lowest byte of the result last.
struct PermuteMode {
  std::string_view name;
  std::array<U32, 4> selectors;
};
constexpr std::array permute_modes = {
    PermuteMode{"f4e", {0x3210, 0x4321, 0x5432, 0x6543}},
    PermuteMode{"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
    PermuteMode{"rc8", {0x0000, 0x1111, 0x2222, 0x3333}},
    PermuteMode{"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
    PermuteMode{"ecr", {0x0000, 0x1110, 0x2210, 0x3210}},
    PermuteMode{"rc16", {0x1010, 0x3232, 0x1010, 0x3232}},
};

constexpr auto permute = [](U32 a, U32 b, U32 selector) {
  const U64 both = U64{b} << 32 | a;
  U32 result = 0;
  for (U32 i = 0; i < 4; ++i) {
    const U32 choice = selector >> (4 * i);
    const auto byte = static_cast<U32>(both >> (8 * (choice & 7))) & 0xff;
    const U32 replicated_sign = (byte & 0x80) != 0 ? 0xff : 0;
    result |= ((choice & 8) != 0 ? replicated_sign : byte) << (8 * i);
  }
  return result;
};

Result decode_prmt(Decoder& decoder) {
  for (const PermuteMode& mode : permute_modes) {
    if (!decoder.take(mode.name)) continue;
    if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
    return lane_by_lane<U32(U32, U32, U32)>(decoder, [selectors = mode.selectors](U32 a, U32 b, U32 c) {
      return permute(a, b, selectors[c & 3]);
    });
  }
  if (decoder.take_type() != Type::b32) decoder.fail("is defined for .b32 only");
  return lanewise<U32(U32, U32, U32)>(decoder, permute);
}

}  // namespace

std::unique_ptr<const Operation> decode_bits(Decoder& decoder) {
  static const std::unordered_map<std::string_view, Result (*)(Decoder&)> by_opcode = {
      {"and", decode_and},     {"or", decode_or},       {"xor", decode_xor},   {"not", decode_not},
      {"cnot", decode_cnot},   {"shl", decode_shl},     {"shr", decode_shr},   {"shf", decode_shf},
      {"lop3", decode_lop3},   {"popc", decode_popc},   {"clz", decode_clz},   {"brev", decode_brev},
      {"bfind", decode_bfind}, {"fns", decode_fns},     {"bfe", decode_bfe},   {"bfi", decode_bfi},
      {"bmsk", decode_bmsk},   {"szext", decode_szext}, {"prmt", decode_prmt},
  };
  const auto found = by_opcode.find(decoder.opcode());
  return found == by_opcode.end() ? nullptr : found->second(decoder);
}

}  // namespace jit::emulator
