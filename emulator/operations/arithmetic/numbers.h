// Floating-point formats, and rounding to them (PTX ISA, "Floating-Point Instructions", "Rounding
// Modifiers").
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace jit::emulator {

enum class Rounding {
  nearest_even,  ///< .rn
  to_zero,       ///< .rz
  down,          ///< .rm
  up,            ///< .rp
  nearest_away,  ///< .rna
};

/// A binary format of at most 64 bits: sign, exponent, fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;
  bool has_infinity = true;  ///< else the largest code is NaN, and those below it are numbers
  std::uint64_t nan;         ///< the NaN that instructions return

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint64_t sign_bit() const { return std::uint64_t{1} << (exponent_bits + fraction_bits); }
  /// Magnitude of infinity, or of NaN in formats without infinity.
  constexpr std::uint64_t beyond_finite() const {
    return has_infinity ? ((std::uint64_t{1} << exponent_bits) - 1) << fraction_bits : sign_bit() - 1;
  }
};

inline constexpr Format e4m3_format = {4, 3, false, 0x7f};
inline constexpr Format e5m2_format = {5, 2, true, 0x7f};
inline constexpr Format f16_format = {5, 10, true, 0x7fff};
inline constexpr Format bf16_format = {8, 7, true, 0x7fff};
inline constexpr Format tf32_format = {8, 10, true, 0x3ffff};
inline constexpr Format f32_format = {8, 23, true, 0x7fffffff};
inline constexpr Format f64_format = {11, 52, true, 0xfff8000000000000};

/// (−1)^negative × significand × 2^exponent, exactly; a little more in magnitude when `sticky`.
struct Exact {
  bool negative;
  std::uint64_t significand;
  int exponent;
  bool sticky = false;
};

/// The bits of a number in a format, rounded once. An overflow gives infinity or the largest number, as IEEE
/// 754 defines for the rounding; with `saturate_finite`, the largest number.
std::uint64_t encode(const Format& format, Exact value, Rounding rounding, bool saturate_finite = false);
/// The bits of a double, possibly infinite or NaN, in a format.
std::uint64_t encode(const Format& format, double value, Rounding rounding, bool saturate_finite = false);
/// The value of a number in a format other than f64, exactly.
double decode(const Format& format, std::uint64_t bits);

// Conversions whose loops vectorize. They are objects, not functions, so that templates can inline them.

inline constexpr std::uint32_t f32_nan = 0x7fffffffu;

/// f32 arithmetic returns a single NaN.
inline float canonical(float x) { return x != x ? std::bit_cast<float>(f32_nan) : x; }

/// A NaN made quiet; sign and payload stay.
inline double quieted(double nan) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(nan) | 0x0008000000000000u);
}

/// .ftz: a subnormal becomes zero and keeps its sign.
inline float flush(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}

/// .sat: into [0, 1]; NaN and −0 become +0.
template <class T>
inline T saturate(T x) {
  x = x > T{0} ? x : T{0};
  return x < T{1} ? x : T{1};
}

inline constexpr auto f32_of_bf16 = [](std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
};

inline constexpr auto f32_of_f16 = [](std::uint16_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffu;
  // Read as an f32, the value is 2^112 too small; the product is exact, also for subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t not_finite = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | not_finite | (bits & 0x8000u) << 16);
};

/// Rounds to nearest even.
inline constexpr auto bf16_of_f32 = [](float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<std::uint16_t>(x != x ? 0x7fffu : rounded);
};

/// x rounded to nearest even in a format of 8 or 16 bits with a smaller range than f32; an overflow gives
/// infinity, or the largest number without infinity or with `saturate_finite`.
template <Format format, bool saturate_finite>
inline constexpr auto narrow = [](float x) {
  constexpr int dropped = 23 - format.fraction_bits;
  constexpr auto rebias = static_cast<std::uint32_t>(127 - format.bias()) << 23;
  constexpr auto least_normal = static_cast<std::uint32_t>(128 - format.bias()) << 23;
  // Its unit in the last place is the least subnormal, so a sum with it rounds there.
  constexpr auto unit = static_cast<std::uint32_t>(24 - format.bias() - format.fraction_bits + 127) << 23;
  constexpr auto beyond = static_cast<std::uint32_t>(format.beyond_finite());

  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t half_less = (1u << (dropped - 1)) - 1;
  const std::uint32_t normal = (magnitude + half_less + (magnitude >> dropped & 1u) - rebias) >> dropped;
  const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(unit);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(sum) - unit;
  std::uint32_t result = magnitude < least_normal ? subnormal : normal;
  const std::uint32_t largest = saturate_finite || !format.has_infinity ? beyond - 1 : beyond;
  result = result < beyond ? result : largest;
  result |= bits >> (31 - format.exponent_bits - format.fraction_bits) &
            static_cast<std::uint32_t>(format.sign_bit());
  return x != x ? static_cast<std::uint32_t>(format.nan) : result;
};

/// Rounds to nearest even.
inline constexpr auto f16_of_f32 = [](float x) {
  return static_cast<std::uint16_t>(narrow<f16_format, false>(x));
};

/// x with its last bit set unless x is exact: rounding this to a format at least two bits shorter equals
/// rounding the exact value once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums").
/// `error` is the exact value minus x.
inline double to_odd(double x, double error) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const bool grows = (error > 0) == (x > 0);
  const bool inexact = error > 0 || error < 0;
  const std::uint64_t neighbor = grows ? bits + 1 : bits - 1;
  return std::bit_cast<double>(inexact && (bits & 1) == 0 ? neighbor : bits);
}

/// a × b + c for values of at most 24 significant bits in the range of f32, rounded to odd.
inline double fused_to_odd(double a, double b, double c) {
  const double product = a * b;  // exact: 48 bits
  const double sum = product + c;
  const double part = sum - product;
  return to_odd(sum, (product - (sum - part)) + (c - part));
}

/// x as an f32, rounded to odd.
inline float f32_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  const bool too_large = std::fabs(back) > std::fabs(x);
  const bool inexact = back != x;
  const std::uint32_t toward_zero = too_large ? bits - 1 : bits;
  return std::bit_cast<float>(inexact && x == x ? toward_zero | 1u : bits);
}

}  // namespace jit::emulator
