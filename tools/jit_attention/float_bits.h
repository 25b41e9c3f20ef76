// 16-bit floating point on the host: conversions that round to nearest, ties to even, as the GPU's do.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace jit::tool {

inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x7fc0);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_fp16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const auto signed_bits = [sign](std::uint32_t rest) { return static_cast<std::uint16_t>(sign | rest); };
  if (std::isnan(value)) return signed_bits(0x7e00);
  constexpr std::uint32_t first_infinite = 0x477ff000;  // 65520: halfway between 65504 and 65536
  if (magnitude >= first_infinite) return signed_bits(0x7c00);
  constexpr std::uint32_t first_normal = 0x38800000;  // 2^-14
  if (magnitude < first_normal) {
    // Floats from 0.5 to 1 are 2^-24 apart, as fp16's subnormals are: the addition rounds to them.
    return signed_bits(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000);
  }
  const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return signed_bits((rounded - (112u << 23)) >> 13);
}

inline float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = bits >> 10 & 31;
  const std::uint32_t mantissa = bits & 1023;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace jit::tool
