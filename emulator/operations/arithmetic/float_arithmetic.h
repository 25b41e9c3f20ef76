// f32 and f64 arithmetic with their shared modifiers.
#pragma once

#include <cfenv>
#include <memory>
#include <string_view>

#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {

struct FloatModifiers {
  std::string_view rounding = "rn";
  bool ftz = false;
  bool sat = false;
};

/// Takes .ftz and .sat.
FloatModifiers take_float_modifiers(Decoder& decoder, std::string_view rounding);

/// `operation` with the host's rounding mode set; `operation` itself for "rn".
std::unique_ptr<const Operation> with_rounding(std::string_view rounding,
                                               std::unique_ptr<const Operation> operation);

/// T(T, T, …) with `count` parameters.
template <class T, std::size_t count>
struct Repeated {
  template <std::size_t... index>
  static auto make(std::index_sequence<index...>)
      -> std::type_identity<T(std::enable_if_t<(index >= 0), T>...)>;
  using Signature = typename decltype(make(std::make_index_sequence<count>()))::type;
};

/// f on f32 values: .ftz on inputs and results, .sat, and the canonical NaN of f32 arithmetic.
template <bool ftz, bool sat, class F>
auto on_singles(F f) {
  return [f](auto... x) {
    float result = ftz ? flush(f(flush(x)...)) : f(x...);
    if (sat) return saturate(result);
    return canonical(result);
  };
}

/// f on f64 values. A NaN operand is the result ("Floating-Point Instructions": payloads are supported for
/// double precision); of several, hardware prefers the second, then the third of a fused operation; for
/// quotients the first.
template <bool prefers_first, class F>
auto on_doubles(F f) {
  return [f](auto... x) {
    const double result = f(x...);
    double nan = std::bit_cast<double>(f64_format.nan);
    const auto prefer = [&nan](double operand) { nan = operand != operand ? quieted(operand) : nan; };
    [[maybe_unused]] const std::array operands = {x...};
    if constexpr (sizeof...(x) == 3) {
      prefer(operands[0]);
      prefer(operands[2]);
      prefer(operands[1]);
    } else if constexpr (sizeof...(x) == 2 && prefers_first) {
      prefer(operands[1]);
      prefer(operands[0]);
    } else {
      (prefer(x), ...);
    }
    return result != result ? nan : result;
  };
}

/// f on both halves of f32x2.
template <class F>
auto on_single_pairs(F f) {
  return [f](auto... packed) {
    const auto half = [](std::uint64_t pair, int i) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(pair >> (32 * i)));
    };
    const float low = f(half(packed, 0)...), high = f(half(packed, 1)...);
    return std::uint64_t{std::bit_cast<std::uint32_t>(low)} |
           std::uint64_t{std::bit_cast<std::uint32_t>(high)} << 32;
  };
}

/// d = f(a, …) of `count` operands with these modifiers, for .f32, .f64 or .f32x2; f works on floats and on
/// doubles.
template <std::size_t count, bool prefers_first_nan = false, class F>
std::unique_ptr<const Operation> float_arithmetic(Decoder& decoder, Type type,
                                                  const FloatModifiers& modifiers, F f) {
  using Singles = typename Repeated<float, count>::Signature;
  using Doubles = typename Repeated<double, count>::Signature;
  using Pairs = typename Repeated<std::uint64_t, count>::Signature;
  const auto make = [&]() -> std::unique_ptr<const Operation> {
    if (type == Type::f64) {
      if (modifiers.ftz || modifiers.sat) decoder.fail(".ftz and .sat are not defined for .f64");
      return lanewise<Doubles>(decoder, on_doubles<prefers_first_nan>(f));
    }
    if (type == Type::f32x2) {
      decoder.require_arch(10, 0);
      if (modifiers.sat) decoder.fail(".sat is not defined for .f32x2");
      if (modifiers.ftz) return lanewise<Pairs>(decoder, on_single_pairs(on_singles<true, false>(f)));
      return lanewise<Pairs>(decoder, on_single_pairs(on_singles<false, false>(f)));
    }
    if (modifiers.sat) {
      if (modifiers.ftz) return lanewise<Singles>(decoder, on_singles<true, true>(f));
      return lanewise<Singles>(decoder, on_singles<false, true>(f));
    }
    if (modifiers.ftz) return lanewise<Singles>(decoder, on_singles<true, false>(f));
    return lanewise<Singles>(decoder, on_singles<false, false>(f));
  };
  return with_rounding(modifiers.rounding, make());
}

/// f on f32 values for approximations, which have only .ftz.
template <std::size_t count, class F>
std::unique_ptr<const Operation> single_approximation(Decoder& decoder, F f) {
  using Singles = typename Repeated<float, count>::Signature;
  const bool ftz = decoder.take("ftz");
  if (!decoder.take("f32")) decoder.fail("this approximation is defined for .f32");
  if (ftz) return lanewise<Singles>(decoder, on_singles<true, false>(f));
  return lanewise<Singles>(decoder, on_singles<false, false>(f));
}

/// Approximations of elementary functions; null for another opcode.
std::unique_ptr<const Operation> decode_approximation(Decoder& decoder);

}  // namespace jit::emulator
