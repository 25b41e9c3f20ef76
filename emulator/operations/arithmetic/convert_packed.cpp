// Conversions to and from pairs of numbers, and to tf32 (PTX ISA, "Data Movement and Conversion Instructions:
// cvt" and "cvt.pack").
#include <array>

#include <fmt/format.h>

#include "operations/arithmetic/convert.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using U16 = std::uint16_t;
using U32 = std::uint32_t;

// Converts one value of a pair from f32.
template <bool relu, class Narrow>
auto rectified(Narrow narrow_one) {
  return [narrow_one](float x) {
    const float y = relu && x <= 0.0f ? 0.0f : x;
    return static_cast<U32>(narrow_one(y));
  };
}

// a becomes the upper half of the result, b the lower one.
template <class To, int width, class Narrow>
Result pair_of_singles(Decoder& decoder, Narrow narrow_one) {
  return lanewise<To(float, float)>(decoder, [narrow_one](float a, float b) {
    return static_cast<To>(narrow_one(a) << width | narrow_one(b));
  });
}

template <class To, int width, class Narrow>
Result pair_of_singles(Decoder& decoder, const Conversion& how, Narrow narrow_one) {
  if (how.relu) return pair_of_singles<To, width>(decoder, rectified<true>(narrow_one));
  return pair_of_singles<To, width>(decoder, rectified<false>(narrow_one));
}

Result to_half_pair(Decoder& decoder, const Conversion& how) {
  if (how.rounding != "rn" && how.rounding != "rz") decoder.fail("lacks one of .rn, .rz");
  if (how.ftz || how.sat) decoder.fail(".ftz and .sat are not defined for pairs");
  if (how.rounding == "rn" && !how.satfinite) {
    if (how.to == Type::f16x2) return pair_of_singles<U32, 16>(decoder, how, f16_of_f32);
    return pair_of_singles<U32, 16>(decoder, how, bf16_of_f32);
  }
  const auto narrow_one = [format = format_of(how.to), rounding = to_rounding(how.rounding),
                           satfinite = how.satfinite, relu = how.relu](float x) {
    const double value = relu && x <= 0.0f ? 0.0 : static_cast<double>(x);
    return static_cast<U32>(encode(format, value, rounding, satfinite));
  };
  return lane_by_lane<U32(float, float)>(
      decoder, [narrow_one](float a, float b) { return narrow_one(a) << 16 | narrow_one(b); });
}

template <class Narrow>
Result to_byte_pair(Decoder& decoder, const Conversion& how, Narrow narrow_one) {
  if (how.from == Type::f32) return pair_of_singles<U16, 8>(decoder, how, narrow_one);
  const auto from_halves = [&](auto widen, auto one) {
    return lanewise<U16(U32)>(decoder, [widen, one](U32 pair) {
      const U32 high = one(widen(static_cast<U16>(pair >> 16)));
      return static_cast<U16>(high << 8 | one(widen(static_cast<U16>(pair))));
    });
  };
  if (how.from == Type::f16x2) {
    if (how.relu) return from_halves(f32_of_f16, rectified<true>(narrow_one));
    return from_halves(f32_of_f16, rectified<false>(narrow_one));
  }
  decoder.fail(fmt::format("does not convert from .{}", to_string(how.from)));
}

Result to_byte_pair(Decoder& decoder, const Conversion& how) {
  decoder.require_arch(8, 9);
  if (how.rounding != "rn" || !how.satfinite) decoder.fail("lacks .rn and .satfinite");
  if (how.ftz || how.sat) decoder.fail(".ftz and .sat are not defined for pairs");
  if (how.to == Type::e4m3x2) return to_byte_pair(decoder, how, narrow<e4m3_format, true>);
  return to_byte_pair(decoder, how, narrow<e5m2_format, true>);
}

Result from_byte_pair(Decoder& decoder, const Conversion& how) {
  decoder.require_arch(8, 9);
  if (how.to != Type::f16x2 || how.rounding != "rn") {
    decoder.fail(fmt::format("from .{} there is .rn.f16x2", to_string(how.from)));
  }
  if (how.ftz || how.sat || how.satfinite) decoder.fail("takes no modifier but .relu");
  std::array<U16, 256> halves{};
  for (U32 byte = 0; byte < halves.size(); ++byte) {
    const double value = decode(format_of(how.from), byte);
    halves[byte] =
        static_cast<U16>(encode(f16_format, how.relu && value <= 0 ? 0.0 : value, Rounding::nearest_even));
  }
  return lane_by_lane<U32(U16)>(
      decoder, [halves](U16 pair) { return U32{halves[pair >> 8]} << 16 | halves[pair & 0xff]; });
}

Result to_tf32(Decoder& decoder, const Conversion& how) {
  if (how.from != Type::f32) decoder.fail(fmt::format("does not convert from .{}", to_string(how.from)));
  if (how.rounding != "rna" && how.rounding != "rn" && how.rounding != "rz") {
    decoder.fail("lacks one of .rna, .rn, .rz");
  }
  if (how.ftz || how.sat) decoder.fail(".ftz and .sat are not defined for .tf32");
  constexpr U32 dropped = (1u << 13) - 1;
  constexpr U32 infinity = 0x7f800000;
  const U32 half = how.rounding == "rz" ? 0 : how.rounding == "rna" ? 0x1000 : 0xfff;
  const U32 odd = how.rounding == "rn" ? 1 : 0;  // rounds ties to even
  const U32 largest = how.satfinite ? infinity - dropped - 1 : infinity;
  const bool keeps_nan = how.rounding == "rna" && !how.satfinite;  // cut off like a number, be it to infinity
  return with_flag(how.relu, [&](auto relu) {
    return lanewise<U32(float)>(decoder, [half, odd, largest, keeps_nan](float x) {
      const U32 given = std::bit_cast<U32>(decltype(relu)::value && x <= 0.0f ? 0.0f : x);
      const U32 rounded = (given & 0x7fffffffu) + half + (given >> 13 & odd);
      const U32 magnitude = rounded >= infinity ? largest : rounded & ~dropped;
      const U32 nan = (keeps_nan ? given : f32_nan) & ~dropped;
      return x != x ? nan : magnitude | (given & 0x80000000u);
    });
  });
}

struct PackedType {
  std::string_view name;
  int width;
  bool has_sign;
};
constexpr std::array packed_types = {
    PackedType{"u16", 16, false}, PackedType{"s16", 16, true}, PackedType{"u8", 8, false},
    PackedType{"s8", 8, true},    PackedType{"u4", 4, false},  PackedType{"s4", 4, true},
    PackedType{"u2", 2, false},   PackedType{"s2", 2, true},
};

}  // namespace

std::unique_ptr<const Operation> decode_packed_conversion(Decoder& decoder, const Conversion& conversion) {
  if (conversion.from == Type::e4m3x2 || conversion.from == Type::e5m2x2) {
    return from_byte_pair(decoder, conversion);
  }
  switch (conversion.to) {
    case Type::f16x2:
    case Type::bf16x2:
      if (conversion.from != Type::f32) {
        decoder.fail(fmt::format("does not convert from .{}", to_string(conversion.from)));
      }
      return to_half_pair(decoder, conversion);
    case Type::e4m3x2:
    case Type::e5m2x2:
      return to_byte_pair(decoder, conversion);
    case Type::tf32:
      return to_tf32(decoder, conversion);
    default:
      return nullptr;
  }
}

std::unique_ptr<const Operation> decode_pack(Decoder& decoder) {
  if (!decoder.take("sat")) decoder.fail("lacks .sat");
  for (const PackedType& type : packed_types) {
    if (!decoder.take(type.name)) continue;
    if (!decoder.take("s32")) decoder.fail("packs values of .s32");
    const std::int32_t least = type.has_sign ? -(1 << (type.width - 1)) : 0;
    const std::int32_t largest = (1 << (type.has_sign ? type.width - 1 : type.width)) - 1;
    const auto pack = [least, largest, width = type.width](std::int32_t a, std::int32_t b) {
      const auto part = [=](std::int32_t x) {
        x = x < least ? least : x;
        x = x > largest ? largest : x;
        return static_cast<U32>(x) & ((1u << width) - 1);
      };
      return part(a) << width | part(b);
    };
    using S32 = std::int32_t;
    if (type.width == 16) return lanewise<U32(S32, S32)>(decoder, pack);
    if (!decoder.take("b32")) decoder.fail("lacks .b32");
    return lanewise<U32(S32, S32, U32)>(
        decoder, [pack, width = type.width](S32 a, S32 b, U32 c) { return c << (2 * width) | pack(a, b); });
  }
  decoder.fail("lacks one of .u16, .s16, .u8, .s8, .u4, .s4, .u2, .s2");
}

}  // namespace jit::emulator
