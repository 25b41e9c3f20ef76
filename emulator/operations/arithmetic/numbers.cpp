#include "operations/arithmetic/numbers.h"

namespace jit::emulator {
namespace {

// Whether a magnitude rounds up; `rest` is the discarded part: 2 is half a unit, 1 and 3 less and more.
bool rounds_up(Rounding rounding, bool negative, bool is_odd, int rest) {
  switch (rounding) {
    case Rounding::nearest_even:
      return rest > 2 || (rest == 2 && is_odd);
    case Rounding::nearest_away:
      return rest >= 2;
    case Rounding::to_zero:
      return false;
    case Rounding::down:
      return negative && rest != 0;
    case Rounding::up:
      return !negative && rest != 0;
  }
  return false;
}

bool overflows_to_infinity(Rounding rounding, bool negative) {
  return rounds_up(rounding, negative, true, 3);
}

}  // namespace

std::uint64_t encode(const Format& format, Exact value, Rounding rounding, bool saturate_finite) {
  const std::uint64_t sign = value.negative ? format.sign_bit() : 0;
  if (value.significand == 0) return sign;
  const int shift = std::countl_zero(value.significand);
  const std::uint64_t significand = value.significand << shift;  // its leading bit is worth 2^exponent
  const int exponent = value.exponent - shift + 63;

  const int least = 1 - format.bias();
  const int kept_exponent = exponent < least ? least : exponent;
  const int dropped = 63 - format.fraction_bits + (kept_exponent - exponent);
  std::uint64_t kept = 0;
  int rest = 1;
  if (dropped <= 64) {
    kept = dropped == 64 ? 0 : significand >> dropped;
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    const std::uint64_t below = significand & (half - 1);
    rest = ((significand & half) != 0 ? 2 : 0) + (below != 0 || value.sticky ? 1 : 0);
  }
  // Adding the leading 1 raises the exponent field; subnormals lack it.
  std::uint64_t bits =
      (static_cast<std::uint64_t>(kept_exponent + format.bias() - 1) << format.fraction_bits) + kept;
  if (rounds_up(rounding, value.negative, (kept & 1) != 0, rest)) ++bits;
  if (bits >= format.beyond_finite()) {
    const bool to_infinity = !saturate_finite && overflows_to_infinity(rounding, value.negative);
    bits = format.beyond_finite() - (to_infinity ? 0 : 1);
  }
  return sign | bits;
}

std::uint64_t encode(const Format& format, double value, Rounding rounding, bool saturate_finite) {
  if (value != value) return format.nan;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const bool negative = bits >> 63 != 0;
  const std::uint64_t fraction = bits & 0x000fffffffffffffu;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0x7ff) {
    return (negative ? format.sign_bit() : 0) | (format.beyond_finite() - (saturate_finite ? 1 : 0));
  }
  if (exponent == 0) return encode(format, Exact{negative, fraction, -1074}, rounding, saturate_finite);
  return encode(format, Exact{negative, fraction | 0x0010000000000000u, exponent - 1075}, rounding,
                saturate_finite);
}

double decode(const Format& format, std::uint64_t bits) {
  const double sign = (bits & format.sign_bit()) != 0 ? -1.0 : 1.0;
  const std::uint64_t magnitude = bits & (format.sign_bit() - 1);
  if (magnitude >= format.beyond_finite()) {
    return format.has_infinity && magnitude == format.beyond_finite()
               ? sign * HUGE_VAL
               : std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
  }
  const auto field = static_cast<int>(magnitude >> format.fraction_bits);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << format.fraction_bits) - 1);
  const std::uint64_t significand =
      field == 0 ? fraction : fraction | std::uint64_t{1} << format.fraction_bits;
  const int exponent = (field == 0 ? 1 : field) - format.bias() - format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(significand), exponent);
}

}  // namespace jit::emulator
