#include <jit/float16.h>

#include <bit>
#include <cmath>
#include <limits>

namespace jit {

float float_from_bits(DType dtype, std::uint16_t bits) {
  if (dtype == DType::fp8_e5m2) return float_from_bits(DType::fp16, static_cast<std::uint16_t>(bits << 8));
  if (dtype == DType::fp8_e4m3) {
    const int exponent = bits >> 3 & 0xf, mantissa = bits & 7;
    const float magnitude = (bits & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                            : exponent == 0       ? std::ldexp(static_cast<float>(mantissa), -9)
                                            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
  }
  if (dtype == DType::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t float_to_bits(DType dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  constexpr std::uint32_t infinity = 0x7f800000u;
  if (magnitude > infinity) return dtype == DType::bf16 ? 0x7fff : 0x7e00;
  if (dtype == DType::bf16) return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  constexpr std::uint32_t first_infinite = 0x477ff000u;  // 65520: halfway between 65504 and 65536
  if (magnitude >= first_infinite) return static_cast<std::uint16_t>(sign | 0x7c00u);
  constexpr std::uint32_t first_normal = 0x38800000u;  // 2^-14
  if (magnitude < first_normal) {
    // Floats in [0.5, 1) have steps of 2^-24, like fp16's subnormals, so that the addition rounds correctly.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1) - (112u << 23);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace jit
