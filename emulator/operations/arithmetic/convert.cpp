// Conversions between numbers (PTX ISA, "Data Movement and Conversion Instructions: cvt").
#include "operations/arithmetic/convert.h"

#include <cmath>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

bool is_wide_register(const Decoder& decoder, std::size_t index, Type type) {
  return bits(type) == 64 || decoder.register_bits(decoder.operand(index)) == 64;
}

// Calls f(U{}) for the type of operand `index`'s register, which may be wider than the instruction's type.
template <class F>
Result with_unit(const Decoder& decoder, std::size_t index, Type type, F f) {
  return is_wide_register(decoder, index, type) ? f(U64{}) : f(U32{});
}

// A two's-complement integer of some width, in 64 bits.
struct Integer {
  explicit Integer(Type type) : Integer(bits(type), is_signed(type)) {}
  Integer(int width, bool has_sign)
      : mask(width == 64 ? ~U64{0} : (U64{1} << width) - 1), sign(has_sign ? U64{1} << (width - 1) : 0) {}

  U64 mask;
  U64 sign;

  U64 extended(U64 value) const { return ((value & mask) ^ sign) - sign; }
  std::int64_t least() const { return static_cast<std::int64_t>(0 - sign); }
  U64 largest() const { return sign == 0 ? mask : sign - 1; }

  // The nearest value in its range; `value` is signed or not.
  U64 saturated(U64 value, bool value_has_sign) const {
    const auto as_signed = static_cast<std::int64_t>(value);
    if (value_has_sign && as_signed < 0) return as_signed < least() ? static_cast<U64>(least()) : value;
    return value > largest() ? largest() : value;
  }
};

// Bits that a destination register keeps: a narrower value is sign- or zero-extended to the whole register.
U64 register_mask(const Decoder& decoder, Type type) {
  const int width = decoder.register_bits(decoder.operand(0));
  return Integer(width == 16 || width == 32 || width == 64 ? width : bits(type), false).mask;
}

template <class To, class From, class F>
Result conversion(Decoder& decoder, bool is_cheap, F f) {
  decoder.expect_count(2);
  const Slot to = decoder.destination(0, ptx_type<To>());
  const Operands<To(From)> operands = {to, {decoder.source(1, ptx_type<From>())}};
  return is_cheap ? lanewise<To(From)>(operands, f) : lane_by_lane<To(From)>(operands, f);
}

Result integer_to_integer(Decoder& decoder, const Conversion& how) {
  if (!how.rounding.empty()) decoder.fail(fmt::format(".{} is not defined between integers", how.rounding));
  const Integer from(how.from), to(how.to);
  const U64 kept = register_mask(decoder, how.to);
  return with_unit(decoder, 0, how.to, [&]<class To>(To) {
    return with_unit(decoder, 1, how.from, [&]<class From>(From) {
      if (how.sat) {
        return conversion<To, From>(decoder, true, [from, to, kept](From x) {
          return static_cast<To>(to.saturated(from.extended(x), from.sign != 0) & kept);
        });
      }
      return conversion<To, From>(decoder, true, [from, to, kept](From x) {
        return static_cast<To>(to.extended(from.extended(x)) & kept);
      });
    });
  });
}

// Calls f(T{}, load) for a floating-point type; load(T) is the value as a float or double.
template <class F>
Result with_float_source(const Decoder& decoder, Type type, F f) {
  switch (type) {
    case Type::f16:
      return f(std::uint16_t{}, f32_of_f16);
    case Type::bf16:
      return f(std::uint16_t{}, f32_of_bf16);
    case Type::f32:
      return f(float{}, [](float x) { return x; });
    case Type::f64:
      return f(double{}, [](double x) { return x; });
    default:
      decoder.fail(fmt::format("does not convert from .{}", to_string(type)));
  }
}

// The most common conversion to an integer; `round` vectorizes.
template <class Round>
Result single_to_s32(Decoder& decoder, bool ftz, Round round) {
  return with_flag(ftz, [&](auto flushes) {
    return conversion<std::int32_t, float>(decoder, true, [round](float x) {
      float whole = round(decltype(flushes)::value ? flush(x) : x);
      whole = whole > -0x1p31f ? whole : -0x1p31f;
      const bool is_beyond = whole >= 0x1p31f;
      const auto inside = static_cast<std::int32_t>(is_beyond ? 0.0f : whole);
      const std::int32_t clamped = is_beyond ? std::numeric_limits<std::int32_t>::max() : inside;
      return x != x ? 0 : clamped;
    });
  });
}

Result float_to_integer(Decoder& decoder, const Conversion& how) {
  if (!how.rounds_to_integer()) decoder.fail("lacks one of .rni, .rzi, .rmi, .rpi");
  const Rounding rounding = to_rounding(how.rounding);
  if (how.from == Type::f32 && how.to == Type::s32 && !is_wide_register(decoder, 0, how.to)) {
    switch (rounding) {
      case Rounding::to_zero:
        return single_to_s32(decoder, how.ftz, [](float x) { return std::trunc(x); });
      case Rounding::down:
        return single_to_s32(decoder, how.ftz, [](float x) { return std::floor(x); });
      case Rounding::up:
        return single_to_s32(decoder, how.ftz, [](float x) { return std::ceil(x); });
      default:
        return single_to_s32(decoder, how.ftz, [](float x) { return std::nearbyint(x); });
    }
  }
  const Integer to(how.to);
  // NaN gives zero, or else the number with only its top bit set.
  const bool nan_is_zero = how.from != Type::f64 && bits(how.to) < 64;
  const U64 nan = nan_is_zero ? 0 : to.extended(U64{1} << (bits(how.to) - 1));
  const U64 kept = register_mask(decoder, how.to);
  const auto to_integer = [rounding, to, nan](double x) {
    if (x != x) return nan;
    const double whole = round_to_integer(x, rounding);
    if (whole <= static_cast<double>(to.least())) return static_cast<U64>(to.least());
    // largest + 1 is a power of two; so is the largest 64-bit number after conversion to double.
    if (whole >= static_cast<double>(to.largest())) return to.largest();
    return whole < 0 ? static_cast<U64>(static_cast<std::int64_t>(whole)) : static_cast<U64>(whole);
  };
  return with_unit(decoder, 0, how.to, [&]<class To>(To) {
    return with_float_source(decoder, how.from, [&]<class From>(From, auto load) {
      return conversion<To, From>(decoder, false, [to_integer, load, kept, ftz = how.ftz](From x) {
        const auto value = load(x);
        if constexpr (std::is_same_v<From, float>) {
          return static_cast<To>(to_integer(static_cast<double>(ftz ? flush(value) : value)) & kept);
        } else {
          return static_cast<To>(to_integer(static_cast<double>(value)) & kept);
        }
      });
    });
  });
}

// The host's conversions round to nearest even.
template <class To>
Result integer_to_nearest(Decoder& decoder, Type from) {
  const auto convert = [](auto x) { return static_cast<To>(x); };
  switch (from) {
    case Type::s32:
      return conversion<To, std::int32_t>(decoder, true, convert);
    case Type::u32:
      return conversion<To, U32>(decoder, true, convert);
    case Type::s64:
      return conversion<To, std::int64_t>(decoder, true, convert);
    case Type::u64:
      return conversion<To, U64>(decoder, true, convert);
    default:
      return nullptr;
  }
}

Result integer_to_float(Decoder& decoder, const Conversion& how) {
  if (how.rounding.empty() || how.rounds_to_integer()) decoder.fail("lacks one of .rn, .rz, .rm, .rp");
  const Rounding rounding = to_rounding(how.rounding);
  const bool same_registers = is_wide_register(decoder, 1, how.from) == (bits(how.from) == 64);
  if (rounding == Rounding::nearest_even && !how.sat && same_registers) {
    Result operation = how.to == Type::f32   ? integer_to_nearest<float>(decoder, how.from)
                       : how.to == Type::f64 ? integer_to_nearest<double>(decoder, how.from)
                                             : nullptr;
    if (operation) return operation;
  }
  const Integer from(how.from);
  const auto convert = [from, rounding, format = format_of(how.to), sat = how.sat](U64 x) {
    U64 value = from.extended(x);
    const bool is_negative = from.sign != 0 && static_cast<std::int64_t>(value) < 0;
    if (sat) value = is_negative || value == 0 ? 0 : 1;
    return encode(format, Exact{is_negative && !sat, is_negative && !sat ? 0 - value : value, 0}, rounding);
  };
  return with_unit(decoder, 1, how.from, [&]<class From>(From) {
    if (how.to == Type::f64) return conversion<U64, From>(decoder, false, convert);
    return conversion<U32, From>(decoder, false, [convert](From x) { return static_cast<U32>(convert(x)); });
  });
}

// Frequent conversions have loops that vectorize; null for others.
Result plain_float_to_float(Decoder& decoder, const Conversion& how) {
  if (how.ftz || how.sat || how.relu || how.satfinite) return nullptr;
  using H = std::uint16_t;
  const bool is_nearest = how.rounding == "rn";
  if (how.from == Type::f32 && is_nearest) {
    if (how.to == Type::f16) return conversion<H, float>(decoder, true, f16_of_f32);
    if (how.to == Type::bf16) return conversion<H, float>(decoder, true, bf16_of_f32);
  }
  if (how.to == Type::f32) {
    if (how.from == Type::f16) {
      return conversion<float, H>(decoder, true, [](H x) { return canonical(f32_of_f16(x)); });
    }
    if (how.from == Type::bf16) return conversion<float, H>(decoder, true, f32_of_bf16);
    if (how.from == Type::f64 && is_nearest) {
      return conversion<float, double>(decoder, true, [](double x) { return static_cast<float>(x); });
    }
  }
  return nullptr;
}

// A double's NaN in a narrower format: its sign and leading payload bits.
U64 narrowed_nan(const Format& format, double nan) {
  const auto bits = std::bit_cast<U64>(quieted(nan));
  const U64 payload = (bits & 0x000fffffffffffffu) >> (52 - format.fraction_bits);
  return (bits >> 63 != 0 ? format.sign_bit() : 0) | format.beyond_finite() | payload;
}

U64 encode_for(Type type, const Format& format, double value, const Conversion& how, Rounding rounding) {
  const bool is_nan = value != value;
  if (type == Type::f64) return std::bit_cast<U64>(is_nan ? quieted(value) : value);
  if (is_nan && how.from == Type::f64) return narrowed_nan(format, value);
  const U64 result = encode(format, value, rounding, how.satfinite);
  return how.ftz && type == Type::f32
             ? std::bit_cast<U32>(flush(std::bit_cast<float>(static_cast<U32>(result))))
             : result;
}

Result float_to_float(Decoder& decoder, const Conversion& how) {
  const bool is_narrowing = bits(how.to) < bits(how.from) || (bits(how.to) == 16 && how.to != how.from);
  if (is_narrowing && (how.rounding.empty() || how.rounds_to_integer())) {
    decoder.fail("lacks one of .rn, .rz, .rm, .rp");
  }
  if (how.rounds_to_integer() && how.to != how.from) {
    decoder.fail(fmt::format(".{} is defined between equal types and to integers", how.rounding));
  }
  if (how.ftz && how.to != Type::f32 && how.from != Type::f32) decoder.fail(".ftz is defined with .f32");
  if (Result operation = plain_float_to_float(decoder, how)) return operation;
  const Rounding rounding = to_rounding(how.rounding);
  const Format format = format_of(how.to);
  return with_float_source(decoder, how.from, [&]<class From>(From, auto load) {
    const auto convert = [=](From x) {
      auto value = load(x);
      if constexpr (std::is_same_v<From, float>) value = how.ftz ? canonical(flush(value)) : value;
      auto number = static_cast<double>(value);
      if (how.rounds_to_integer()) number = round_to_integer(number, rounding);
      if (how.sat) number = saturate(number);
      if (how.relu && number <= 0) number = 0;
      return encode_for(how.to, format, number, how, rounding);
    };
    if (how.to == Type::f64) return conversion<U64, From>(decoder, false, convert);
    return conversion<U32, From>(decoder, false, [convert](From x) { return static_cast<U32>(convert(x)); });
  });
}

}  // namespace

Rounding to_rounding(std::string_view modifier) {
  if (modifier == "rna") return Rounding::nearest_away;
  const std::string_view stem = modifier.substr(0, 2);
  if (stem == "rz") return Rounding::to_zero;
  if (stem == "rm") return Rounding::down;
  if (stem == "rp") return Rounding::up;
  return Rounding::nearest_even;
}

double round_to_integer(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::to_zero:
      return std::trunc(x);
    case Rounding::down:
      return std::floor(x);
    case Rounding::up:
      return std::ceil(x);
    case Rounding::nearest_away:
      return std::round(x);
    case Rounding::nearest_even:
      break;
  }
  return std::nearbyint(x);
}

const Format& format_of(Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return f16_format;
    case Type::bf16:
    case Type::bf16x2:
      return bf16_format;
    case Type::tf32:
      return tf32_format;
    case Type::e4m3:
    case Type::e4m3x2:
      return e4m3_format;
    case Type::e5m2:
    case Type::e5m2x2:
      return e5m2_format;
    case Type::f64:
      return f64_format;
    default:
      return f32_format;
  }
}

std::unique_ptr<const Operation> decode_convert(Decoder& decoder) {
  if (decoder.opcode() != "cvt") return nullptr;
  decoder.set_class(InstructionClass::conversion);
  if (decoder.take("pack")) return decode_pack(decoder);
  Conversion how;
  how.rounding = decoder.take_any_of({"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"});
  how.ftz = decoder.take("ftz");
  how.sat = decoder.take("sat");
  how.relu = decoder.take("relu");
  how.satfinite = decoder.take("satfinite");
  how.to = decoder.take_type();
  how.from = decoder.take_type();
  if (Result operation = decode_packed_conversion(decoder, how)) return operation;
  if (how.rounding == "rna") decoder.fail(".rna is defined for .tf32");
  if (bits(how.to) > 64 || bits(how.from) > 64) decoder.fail("128 bits are not known to the emulator");
  const bool narrow_modifiers = how.relu || how.satfinite;
  if (narrow_modifiers && how.to != Type::f16 && how.to != Type::bf16) {
    decoder.fail(".relu and .satfinite are defined for .f16, .bf16, .tf32 and pairs");
  }
  if (is_float(how.to)) {
    return is_float(how.from) ? float_to_float(decoder, how) : integer_to_float(decoder, how);
  }
  return is_float(how.from) ? float_to_integer(decoder, how) : integer_to_integer(decoder, how);
}

}  // namespace jit::emulator
