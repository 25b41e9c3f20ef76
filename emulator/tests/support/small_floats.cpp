#include "tests/support/small_floats.h"

#include <cmath>
#include <limits>

namespace jit::emulator::testing {

bool SmallFormat::is_nan(std::uint32_t code) const {
  return (code & (sign_bit() - 1)) > largest + (has_infinity ? 1 : 0);
}

bool SmallFormat::is_subnormal(std::uint32_t code) const {
  const std::uint32_t magnitude = code & (sign_bit() - 1);
  return magnitude != 0 && magnitude < 1u << fraction_bits;
}

double SmallFormat::value(std::uint32_t code) const {
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

std::uint32_t SmallFormat::nearest(Quad x, bool negative_zero) const {
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

}  // namespace jit::emulator::testing
