// The formats of 8 and 16 bits for tests: values by definition, and rounding by searching among all codes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace jit::emulator::testing {

/// 113 bits: sums of a product of two half-precision numbers and a third are exact, unless of very different
/// size.
__extension__ using Quad = __float128;

struct SmallFormat {
  std::string_view name;
  int exponent_bits, fraction_bits;
  std::uint32_t largest;  ///< code of the largest number
  std::uint32_t nan;
  bool has_infinity;  ///< behind the largest number

  std::uint32_t sign_bit() const { return 1u << (exponent_bits + fraction_bits); }
  bool is_nan(std::uint32_t code) const {
    return (code & (sign_bit() - 1)) > largest + (has_infinity ? 1 : 0);
  }
  bool is_subnormal(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    return magnitude != 0 && magnitude < 1u << fraction_bits;
  }
  /// The value of finite codes and infinity; NaN for NaN.
  double value(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    const int exponent = static_cast<int>(magnitude >> fraction_bits);
    const std::uint32_t fraction = magnitude & ((1u << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double significand = exponent == 0 ? fraction : fraction + (1u << fraction_bits);
    double result = std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
    if (is_nan(code)) return std::numeric_limits<double>::quiet_NaN();
    if (magnitude > largest) result = std::numeric_limits<double>::infinity();
    return (code & sign_bit()) != 0 ? -result : result;
  }
  /// The nearest code, ties to even; what is too large becomes the code behind the largest.
  std::uint32_t nearest(Quad x, bool negative_zero = false) const {
    if (x != x) return nan;
    const std::uint32_t sign = x < 0 || (x == 0 && negative_zero) ? sign_bit() : 0;
    const Quad size = x < 0 ? -x : x;
    std::uint32_t low = 0,
                  high = largest + 1;  // value(low) ≤ size < value(high), the latter if it were finite
    const Quad beyond = Quad{value(largest)} * 2 - value(largest - 1);
    if (size >= beyond) return sign | high;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (Quad{value(middle)} <= size ? low : high) = middle;
    }
    const Quad below = size - value(low);
    const Quad above = (high > largest ? beyond : Quad{value(high)}) - size;
    const bool up = below > above || (below == above && (low & 1) != 0);
    return sign | (up ? high : low);
  }
};

inline constexpr SmallFormat f16 = {"f16", 5, 10, 0x7bff, 0x7fff, true};
inline constexpr SmallFormat bf16 = {"bf16", 8, 7, 0x7f7f, 0x7fff, true};
inline constexpr SmallFormat e4m3 = {"e4m3", 4, 3, 0x7e, 0x7f, false};
inline constexpr SmallFormat e5m2 = {"e5m2", 5, 2, 0x7b, 0x7f, true};

}  // namespace jit::emulator::testing
