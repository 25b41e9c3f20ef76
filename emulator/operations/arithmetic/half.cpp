// f16 and bf16 arithmetic, alone and in pairs (PTX ISA, "Half Precision Floating-Point Instructions").
#include <unordered_map>

#include <fmt/format.h>

#include "operations/arithmetic/exponentials.h"
#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;
using Half = std::uint16_t;

struct F16 {
  static constexpr std::uint32_t infinity = 0x7c00;
  static float widen(Half x) { return f32_of_f16(x); }
  static Half narrow(float x) { return f16_of_f32(x); }
};
struct Bf16 {
  static constexpr std::uint32_t infinity = 0x7f80;
  static float widen(Half x) { return f32_of_bf16(x); }
  static Half narrow(float x) { return bf16_of_f32(x); }
};

constexpr Half sign_bit = 0x8000;
constexpr Half canonical_nan = 0x7fff;

template <class F>
bool is_nan(Half x) {
  return (x & 0x7fffu) > F::infinity;
}

// Flushes a subnormal to zero, keeping its sign.
template <class F>
Half flush(Half x) {
  return (x & F::infinity) == 0 ? static_cast<Half>(x & sign_bit) : x;
}

struct HalfType {
  bool is_bf16 = false;
  bool is_pair = false;
};

HalfType take_half_type(Decoder& decoder) {
  const Type type = decoder.take_type();
  if (type != Type::f16 && type != Type::f16x2 && type != Type::bf16 && type != Type::bf16x2) {
    decoder.fail(fmt::format("type .{} is none of .f16, .f16x2, .bf16, .bf16x2", to_string(type)));
  }
  return {type == Type::bf16 || type == Type::bf16x2, type == Type::f16x2 || type == Type::bf16x2};
}

template <std::size_t count, class T>
struct Operation16;
template <class T>
struct Operation16<1, T> : std::type_identity<T(T)> {};
template <class T>
struct Operation16<2, T> : std::type_identity<T(T, T)> {};
template <class T>
struct Operation16<3, T> : std::type_identity<T(T, T, T)> {};

// f on values of 16 bits, or on both halves of packed ones.
template <std::size_t count, class F>
Result on_type(Decoder& decoder, HalfType type, F f) {
  if (!type.is_pair) return lanewise<typename Operation16<count, Half>::type>(decoder, f);
  return lanewise<typename Operation16<count, std::uint32_t>::type>(decoder, on_halves<Half>(f));
}

// f on 16-bit values, lane by lane, for expensive or branching f.
template <std::size_t count, class F>
Result on_type_lane_by_lane(Decoder& decoder, HalfType type, F f) {
  if (!type.is_pair) return lane_by_lane<typename Operation16<count, Half>::type>(decoder, f);
  return lane_by_lane<typename Operation16<count, std::uint32_t>::type>(decoder, on_halves<Half>(f));
}

struct ArithmeticModifiers {
  bool ftz = false;
  bool sat = false;
  bool relu = false;

  bool any() const { return ftz || sat || relu; }
};

// Clamps a result before rounding, which gives the same as after.
float clamp(float x, const ArithmeticModifiers& modifiers) {
  if (modifiers.sat) return saturate(x);
  if (modifiers.relu) return x <= 0.0f ? 0.0f : x;
  return x;
}

// a × b + c, rounded once.
template <class F>
constexpr auto fused = [](Half a, Half b, Half c, const ArithmeticModifiers& modifiers) {
  if (modifiers.ftz) {
    a = flush<F>(a);
    b = flush<F>(b);
    c = flush<F>(c);
  }
  const double exact = fused_to_odd(F::widen(a), F::widen(b), F::widen(c));
  const Half result = F::narrow(clamp(f32_to_odd(exact), modifiers));
  return modifiers.ftz ? flush<F>(result) : result;
};

template <class F>
constexpr Half one = std::is_same_v<F, F16> ? 0x3c00 : 0x3f80;

// Calls g(F{}) for the type's format.
template <class G>
Result with_format(HalfType type, G g) {
  return type.is_bf16 ? g(Bf16{}) : g(F16{});
}

struct Arithmetic {
  HalfType type;
  ArithmeticModifiers modifiers;
};

Arithmetic take_arithmetic(Decoder& decoder) {
  decoder.take("rn");
  ArithmeticModifiers modifiers;
  modifiers.ftz = decoder.take("ftz");
  modifiers.sat = decoder.take("sat");
  modifiers.relu = decoder.take("relu");
  const HalfType type = take_half_type(decoder);
  if (type.is_bf16 && (modifiers.ftz || modifiers.sat))
    decoder.fail(".ftz and .sat are not defined for bf16");
  if (modifiers.sat && modifiers.relu) decoder.fail(".sat and .relu exclude each other");
  return {type, modifiers};
}

// f(a, …, modifiers) of `count` operands; loops without modifiers vectorize.
template <std::size_t count, class F>
Result arithmetic(Decoder& decoder, const Arithmetic& given, F f) {
  if (!given.modifiers.any()) {
    return on_type<count>(decoder, given.type, [f](auto... x) { return f(x..., ArithmeticModifiers()); });
  }
  return on_type_lane_by_lane<count>(
      decoder, given.type, [f, modifiers = given.modifiers](auto... x) { return f(x..., modifiers); });
}

// add, sub and mul as cases of a × b + c.
template <class Combine>
Result decode_binary(Decoder& decoder, Combine combine) {
  const Arithmetic given = take_arithmetic(decoder);
  if (given.modifiers.relu) decoder.fail(".relu is defined for fma");
  if (given.type.is_bf16) decoder.require_arch(9, 0);
  return with_format(given.type, [&]<class F>(F format) {
    return arithmetic<2>(decoder, given,
                         [combine, format](Half a, Half b, const ArithmeticModifiers& modifiers) {
                           return combine(format, a, b, modifiers);
                         });
  });
}

Result decode_add(Decoder& decoder) {
  return decode_binary(decoder, []<class F>(F, Half a, Half b, const ArithmeticModifiers& modifiers) {
    return fused<F>(a, one<F>, b, modifiers);
  });
}
Result decode_sub(Decoder& decoder) {
  return decode_binary(decoder, []<class F>(F, Half a, Half b, const ArithmeticModifiers& modifiers) {
    return fused<F>(a, one<F>, static_cast<Half>(b ^ sign_bit), modifiers);
  });
}
Result decode_mul(Decoder& decoder) {
  return decode_binary(decoder, []<class F>(F, Half a, Half b, const ArithmeticModifiers& modifiers) {
    return fused<F>(a, b, sign_bit, modifiers);  // −0 preserves the sign of a zero product
  });
}

Result decode_fma(Decoder& decoder) {
  const bool zero_out_of_bounds = decoder.take("oob");
  if (zero_out_of_bounds) decoder.require_arch(9, 0);
  const Arithmetic given = take_arithmetic(decoder);
  return with_format(given.type, [&]<class F>(F) {
    if (!zero_out_of_bounds) return arithmetic<3>(decoder, given, fused<F>);
    return on_type_lane_by_lane<3>(decoder, given.type,
                                   [modifiers = given.modifiers](Half a, Half b, Half c) {
                                     // The NaN that a tensor copy writes for out-of-bounds elements.
                                     constexpr Half oob_nan = 0x7ff7;
                                     const bool is_out = (a & 0x7fff) == oob_nan || (b & 0x7fff) == oob_nan;
                                     return is_out ? Half{0} : fused<F>(a, b, c, modifiers);
                                   });
  });
}

template <bool absolute>
Result decode_sign(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  const HalfType type = take_half_type(decoder);
  if (type.is_bf16 && ftz) decoder.fail(".ftz is not defined for bf16");
  return with_format(type, [&]<class F>(F) {
    return with_flag(ftz, [&](auto flushes) {
      return on_type<1>(decoder, type, [](Half x) {
        x = decltype(flushes)::value ? flush<F>(x) : x;
        const auto changed = static_cast<Half>(absolute ? x & ~sign_bit : x ^ sign_bit);
        return is_nan<F>(x) ? canonical_nan : changed;
      });
    });
  });
}

// A number with the order of the half, −0 before +0.
std::int32_t order_key(Half x) {
  const std::int32_t magnitude = x & 0x7fff;
  return (x & sign_bit) != 0 ? -magnitude - 1 : magnitude;
}

template <class F, bool largest>
Half extremum(Half a, Half b, bool strict) {
  const bool b_first = order_key(b) < order_key(a);
  Half result = b_first == largest ? a : b;
  const bool a_nan = is_nan<F>(a), b_nan = is_nan<F>(b);
  result = a_nan ? b : (b_nan ? a : result);
  return (strict ? a_nan || b_nan : a_nan && b_nan) ? canonical_nan : result;
}

template <bool largest>
Result decode_extremum(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  const bool strict = decoder.take("NaN");
  const bool xors_sign = decoder.take("xorsign");
  if (decoder.take("abs") != xors_sign) decoder.fail(".xorsign and .abs stand together");
  const HalfType type = take_half_type(decoder);
  if (type.is_bf16 && ftz) decoder.fail(".ftz is not defined for bf16");
  return with_format(type, [&]<class F>(F) {
    if (!ftz && !xors_sign) {
      return with_flag(strict, [&](auto is_strict) {
        return on_type<2>(decoder, type, [](Half a, Half b) {
          return extremum<F, largest>(a, b, decltype(is_strict)::value);
        });
      });
    }
    return on_type_lane_by_lane<2>(decoder, type, [ftz, strict, xors_sign](Half a, Half b) {
      a = ftz ? flush<F>(a) : a;
      b = ftz ? flush<F>(b) : b;
      const Half sign = xors_sign ? static_cast<Half>((a ^ b) & sign_bit) : Half{0};
      const Half keep = xors_sign ? 0x7fff : 0xffff;
      const Half result = extremum<F, largest>(a & keep, b & keep, strict);
      return is_nan<F>(result) ? result : static_cast<Half>(result | sign);
    });
  });
}

template <bool ftz, class Function>
Result decode_function(Decoder& decoder, Function function) {
  const HalfType type = take_half_type(decoder);
  return with_format(type, [&]<class F>(F) {
    return on_type<1>(decoder, type, [function](Half x) {
      const float value = F::widen(ftz ? flush<F>(x) : x);
      const Half result = F::narrow(f32_to_odd(function(static_cast<double>(value))));
      const Half flushed = ftz ? flush<F>(result) : result;
      return is_nan<F>(x) ? canonical_nan : flushed;
    });
  });
}

Result decode_tanh(Decoder& decoder) {
  if (!decoder.take("approx")) decoder.fail("lacks .approx");
  return decode_function<false>(decoder, tanh_of);
}

Result decode_ex2(Decoder& decoder) {
  if (!decoder.take("approx")) decoder.fail("lacks .approx");
  const bool ftz = decoder.take("ftz");
  if (ftz != (decoder.has("bf16") || decoder.has("bf16x2"))) {
    decoder.fail(".ftz stands with .bf16 and .bf16x2, and not with .f16 and .f16x2");
  }
  if (ftz) return decode_function<true>(decoder, exp2_of);
  return decode_function<false>(decoder, exp2_of);
}

}  // namespace

std::unique_ptr<const Operation> decode_half(Decoder& decoder) {
  struct Entry {
    Result (*decode)(Decoder&);
    InstructionClass kind = InstructionClass::floating;
  };
  static const std::unordered_map<std::string_view, Entry> by_opcode = {
      {"add", {decode_add}},
      {"sub", {decode_sub}},
      {"mul", {decode_mul}},
      {"fma", {decode_fma}},
      {"abs", {decode_sign<true>}},
      {"neg", {decode_sign<false>}},
      {"min", {decode_extremum<false>}},
      {"max", {decode_extremum<true>}},
      {"tanh", {decode_tanh, InstructionClass::special_function}},
      {"ex2", {decode_ex2, InstructionClass::special_function}},
  };
  const auto found = by_opcode.find(decoder.opcode());
  if (found == by_opcode.end()) return nullptr;
  if (decoder.has("f32") || decoder.has("f64") || decoder.has("f32x2")) return nullptr;
  if (const auto type = last_type(decoder); !type || !is_float(*type)) return nullptr;
  Result operation = found->second.decode(decoder);
  decoder.set_class(found->second.kind);
  return operation;
}

}  // namespace jit::emulator
