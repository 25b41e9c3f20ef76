// f32 and f64 arithmetic (PTX ISA, "Floating-Point Instructions").
#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "operations/arithmetic/float_arithmetic.h"

namespace jit::emulator {

namespace {

using Result = std::unique_ptr<const Operation>;

struct DirectedRounding final : Operation {
  DirectedRounding(int host_rounding, std::unique_ptr<const Operation> what)
      : mode(host_rounding), operation(std::move(what)) {}

  int mode;
  std::unique_ptr<const Operation> operation;

  Flow execute(Warp& warp) const override {
    const int before = std::fegetround();
    std::fesetround(mode);
    const Flow flow = operation->execute(warp);
    std::fesetround(before);
    return flow;
  }
};

FloatModifiers take_modifiers_with_default(Decoder& decoder) {
  const std::string_view rounding = decoder.take_any_of({"rn", "rz", "rm", "rp"});
  return take_float_modifiers(decoder, rounding.empty() ? "rn" : rounding);
}

FloatModifiers take_modifiers_with_rounding(Decoder& decoder) {
  return take_float_modifiers(decoder, decoder.take_one_of({"rn", "rz", "rm", "rp"}));
}

// f(a, …, c), where the first `mixed` operands are f16 or bf16 and the last is f32.
template <std::size_t mixed, class F>
Result mixed_arithmetic(Decoder& decoder, Type narrow, const FloatModifiers& modifiers, F f) {
  decoder.require_arch(10, 0);
  if (modifiers.ftz) decoder.fail(".ftz is not defined for mixed precision");
  const auto widen = [is_bf16 = narrow == Type::bf16](std::uint16_t x) {
    return is_bf16 ? f32_of_bf16(x) : f32_of_f16(x);
  };
  using H = std::uint16_t;
  const auto make = [&](auto g) -> Result {
    if constexpr (mixed == 1) {
      return lanewise<float(H, float)>(decoder, [g, widen](H a, float c) { return g(widen(a), c); });
    } else {
      return lanewise<float(H, H, float)>(decoder,
                                          [g, widen](H a, H b, float c) { return g(widen(a), widen(b), c); });
    }
  };
  return with_rounding(modifiers.rounding,
                       modifiers.sat ? make(on_singles<false, true>(f)) : make(on_singles<false, false>(f)));
}

template <std::size_t count, class F>
Result decode_plain_or_mixed(Decoder& decoder, const FloatModifiers& modifiers, F f) {
  const Type type = decoder.take_type();
  if (type == Type::f32 && (decoder.has("f16") || decoder.has("bf16"))) {
    return mixed_arithmetic<count - 1>(decoder, decoder.take_type(), modifiers, f);
  }
  return float_arithmetic<count>(decoder, type, modifiers, f);
}

Result decode_add(Decoder& decoder) {
  return decode_plain_or_mixed<2>(decoder, take_modifiers_with_default(decoder),
                                  [](auto a, auto b) { return a + b; });
}
Result decode_sub(Decoder& decoder) {
  return decode_plain_or_mixed<2>(decoder, take_modifiers_with_default(decoder),
                                  [](auto a, auto b) { return a - b; });
}
Result decode_mul(Decoder& decoder) {
  const FloatModifiers modifiers = take_modifiers_with_default(decoder);
  return float_arithmetic<2>(decoder, decoder.take_type(), modifiers, [](auto a, auto b) { return a * b; });
}
Result decode_fma(Decoder& decoder) {
  return decode_plain_or_mixed<3>(decoder, take_modifiers_with_rounding(decoder),
                                  [](auto a, auto b, auto c) { return std::fma(a, b, c); });
}

Result decode_div(Decoder& decoder) {
  const auto quotient = [](auto a, auto b) { return a / b; };
  if (decoder.take("full")) return single_approximation<2>(decoder, quotient);
  if (decoder.take("approx")) {
    // a × (1 / b); the second factor is flushed to zero for the largest b.
    return single_approximation<2>(decoder, [](float a, float b) {
      const bool reciprocal_vanishes = std::fabs(b) > 0x1p126f && std::fabs(b) < HUGE_VALF;
      const float by_zero = a * std::copysign(0.0f, b);
      const float divided = a / b;
      return reciprocal_vanishes ? by_zero : divided;
    });
  }
  const FloatModifiers modifiers = take_modifiers_with_rounding(decoder);
  if (modifiers.sat) decoder.fail(".sat is not defined for div");
  const Type type = decoder.take_type();
  if (!modifiers.ftz) return float_arithmetic<2, true>(decoder, type, modifiers, quotient);
  // The decision to flush a quotient precedes its rounding.
  return float_arithmetic<2, true>(decoder, type, modifiers, [](auto a, auto b) {
    const auto divided = a / b;
    const bool is_tiny = std::fabs(static_cast<double>(a)) < std::fabs(static_cast<double>(b)) * 0x1p-126;
    return is_tiny ? std::copysign(decltype(a){0}, divided) : divided;
  });
}

// f on the upper word of a double gives the upper word of the result: the "gross" approximations.
template <class F>
Result gross_approximation(Decoder& decoder, F f) {
  if (!decoder.take("ftz")) decoder.fail("the approximation of .f64 is defined with .ftz");
  return lane_by_lane<double(double)>(decoder, [f](double x) {
    constexpr std::uint64_t upper = 0xffffffff00000000;
    constexpr std::uint64_t exponent = 0x7ff0000000000000;
    auto bits = std::bit_cast<std::uint64_t>(x) & upper;
    if ((bits & exponent) == 0) bits &= f64_format.sign_bit();
    const double y = f(std::bit_cast<double>(bits));
    if (y != y) return std::bit_cast<double>(std::uint64_t{0x7fffffff00000000});
    const auto result = std::bit_cast<std::uint64_t>(y);
    if ((result & exponent) == 0) return std::bit_cast<double>(result & f64_format.sign_bit());
    return std::bit_cast<double>(result & upper);
  });
}

template <class F>
Result decode_root_or_reciprocal(Decoder& decoder, F f) {
  if (decoder.take("approx")) {
    if (decoder.take("f64")) return gross_approximation(decoder, f);
    return single_approximation<1>(decoder, f);
  }
  const FloatModifiers modifiers = take_modifiers_with_rounding(decoder);
  if (modifiers.sat) decoder.fail(".sat is not defined here");
  return float_arithmetic<1>(decoder, decoder.take_type(), modifiers, f);
}

Result decode_rcp(Decoder& decoder) {
  return decode_root_or_reciprocal(decoder, [](auto x) { return decltype(x){1} / x; });
}
Result decode_sqrt(Decoder& decoder) {
  if (decoder.has("approx") && decoder.has("f64")) decoder.fail("sqrt.approx is defined for .f32");
  return decode_root_or_reciprocal(decoder, [](auto x) { return std::sqrt(x); });
}
Result decode_rsqrt(Decoder& decoder) {
  if (!decoder.take("approx")) decoder.fail("lacks .approx");
  const auto inverse = [](double x) { return 1.0 / std::sqrt(x); };
  if (decoder.take("f64")) {
    if (decoder.has("ftz")) return gross_approximation(decoder, inverse);
    return lanewise<double(double)>(decoder, on_doubles<false>(inverse));
  }
  return single_approximation<1>(decoder, [inverse](float x) { return static_cast<float>(inverse(x)); });
}

template <class T>
using Bits = Unit<T>;

template <class T>
constexpr Bits<T> sign_of = Bits<T>{1} << (8 * sizeof(T) - 1);

template <bool absolute>
Result decode_sign(Decoder& decoder) {
  const FloatModifiers modifiers = take_float_modifiers(decoder, "rn");
  if (modifiers.sat) decoder.fail(".sat is not defined here");
  const Type type = decoder.take_type();
  const auto change = []<class T>(T x) {
    const auto bits = std::bit_cast<Bits<T>>(x);
    return std::bit_cast<T>(absolute ? bits & ~sign_of<T> : bits ^ sign_of<T>);
  };
  if (type == Type::f64) {
    if (modifiers.ftz) decoder.fail(".ftz is not defined for .f64");
    return lanewise<double(double)>(decoder, [change](double x) {
      const double changed = change(x);
      return x != x ? quieted(x) : changed;
    });
  }
  if (type != Type::f32) decoder.fail(fmt::format("type .{} is neither .f32 nor .f64", to_string(type)));
  return float_arithmetic<1>(decoder, type, modifiers, [change](auto x) { return change(x); });
}

Result decode_copysign(Decoder& decoder) {
  const auto combine = []<class T>(T sign, T magnitude) {
    return std::bit_cast<T>((std::bit_cast<Bits<T>>(sign) & sign_of<T>) |
                            (std::bit_cast<Bits<T>>(magnitude) & ~sign_of<T>));
  };
  const Type type = decoder.take_type();
  if (type == Type::f64) return lanewise<double(double, double)>(decoder, combine);
  if (type != Type::f32) decoder.fail(fmt::format("type .{} is neither .f32 nor .f64", to_string(type)));
  return lanewise<float(float, float)>(decoder, combine);
}

// An integer with the order of the number, −0 before +0.
template <class T>
auto order_key(T x) {
  using S = std::make_signed_t<Bits<T>>;
  const auto bits = std::bit_cast<S>(x);
  return bits ^ static_cast<S>(static_cast<Bits<T>>(bits >> (8 * sizeof(T) - 1)) >> 1);
}

// The smaller or larger number. With `strict`, NaN when either is NaN.
template <bool largest, bool strict, class T>
T extremum(T a, T b) {
  const bool b_first = order_key(b) < order_key(a);
  T result = b_first == largest ? a : b;
  if (strict) {
    result = a != a ? a : result;
    return b != b ? b : result;
  }
  result = a != a ? b : result;
  return b != b ? a : result;
}

template <bool largest, bool strict>
Result decode_single_extremum(Decoder& decoder, const FloatModifiers& modifiers) {
  const bool xors_sign = decoder.take("xorsign");
  const bool absolute = decoder.take("abs");
  const auto choose = [](auto a, auto b) { return extremum<largest, strict>(a, b); };
  if (decoder.count() == 4) {
    decoder.require_arch(10, 0);
    if (xors_sign) decoder.fail(".xorsign is not defined for three values");
    return float_arithmetic<3>(decoder, Type::f32, modifiers, [absolute, choose](auto a, auto b, auto c) {
      const auto magnitude = [absolute](auto x) { return absolute ? std::fabs(x) : x; };
      return choose(choose(magnitude(a), magnitude(b)), magnitude(c));
    });
  }
  if (xors_sign != absolute) decoder.fail("with two values .xorsign and .abs stand together");
  if (!xors_sign) return float_arithmetic<2>(decoder, Type::f32, modifiers, choose);
  return float_arithmetic<2>(decoder, Type::f32, modifiers, [choose](auto a, auto b) {
    const auto chosen = choose(std::fabs(a), std::fabs(b));
    const auto sign =
        (std::bit_cast<Bits<decltype(a)>>(a) ^ std::bit_cast<Bits<decltype(a)>>(b)) & sign_of<decltype(a)>;
    return std::bit_cast<decltype(a)>(std::bit_cast<Bits<decltype(a)>>(chosen) | sign);
  });
}

template <bool largest>
Result decode_extremum(Decoder& decoder) {
  const FloatModifiers modifiers = take_float_modifiers(decoder, "rn");
  if (modifiers.sat) decoder.fail(".sat is not defined here");
  const bool strict = decoder.take("NaN");
  const Type type = decoder.take_type();
  if (type == Type::f64) {
    if (strict) decoder.fail(".NaN is not defined for .f64");
    return float_arithmetic<2>(decoder, type, modifiers,
                               [](auto a, auto b) { return extremum<largest, false>(a, b); });
  }
  if (type != Type::f32) decoder.fail(fmt::format("type .{} is neither .f32 nor .f64", to_string(type)));
  return strict ? decode_single_extremum<largest, true>(decoder, modifiers)
                : decode_single_extremum<largest, false>(decoder, modifiers);
}

}  // namespace

FloatModifiers take_float_modifiers(Decoder& decoder, std::string_view rounding) {
  FloatModifiers modifiers;
  modifiers.rounding = rounding;
  modifiers.ftz = decoder.take("ftz");
  modifiers.sat = decoder.take("sat");
  return modifiers;
}

std::unique_ptr<const Operation> with_rounding(std::string_view rounding,
                                               std::unique_ptr<const Operation> operation) {
  if (rounding == "rn") return operation;
  const int mode = rounding == "rz" ? FE_TOWARDZERO : rounding == "rm" ? FE_DOWNWARD : FE_UPWARD;
  return std::make_unique<DirectedRounding>(mode, std::move(operation));
}

std::unique_ptr<const Operation> decode_floating(Decoder& decoder) {
  struct Entry {
    Result (*decode)(Decoder&);
    InstructionClass kind = InstructionClass::floating;
  };
  static const std::unordered_map<std::string_view, Entry> by_opcode = {
      {"add", {decode_add}},
      {"sub", {decode_sub}},
      {"mul", {decode_mul}},
      {"fma", {decode_fma}},
      {"mad", {decode_fma}},
      {"div", {decode_div}},
      {"abs", {decode_sign<true>}},
      {"neg", {decode_sign<false>}},
      {"copysign", {decode_copysign}},
      {"min", {decode_extremum<false>}},
      {"max", {decode_extremum<true>}},
      {"rcp", {decode_rcp, InstructionClass::special_function}},
      {"sqrt", {decode_sqrt, InstructionClass::special_function}},
      {"rsqrt", {decode_rsqrt, InstructionClass::special_function}},
      {"sin", {decode_approximation, InstructionClass::special_function}},
      {"cos", {decode_approximation, InstructionClass::special_function}},
      {"lg2", {decode_approximation, InstructionClass::special_function}},
      {"ex2", {decode_approximation, InstructionClass::special_function}},
      {"tanh", {decode_approximation, InstructionClass::special_function}},
  };
  const auto found = by_opcode.find(decoder.opcode());
  if (found == by_opcode.end()) return nullptr;
  if (!decoder.has("f32") && !decoder.has("f64") && !decoder.has("f32x2")) return nullptr;
  Result operation = found->second.decode(decoder);
  decoder.set_class(found->second.kind);
  return operation;
}

}  // namespace jit::emulator
