// bf16 and fp16 as bits on the host: exact one way, rounded to nearest even the other.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <jit/tensor.h>

namespace jit::reference {

inline float to_float(DType dtype, std::uint16_t bits) {
  if (dtype == DType::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

inline std::uint16_t from_float(DType dtype, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return dtype == DType::bf16 ? 0x7fff : 0x7e00;
  if (dtype == DType::bf16) {
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  }
  if (magnitude >= 0x477ff000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal: a whole number of 2^-24, rounded by the addition
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1) - (112u << 23);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

/// `value` as the 16-bit type holds it.
inline float rounded(DType dtype, float value) { return to_float(dtype, from_float(dtype, value)); }

/// Half the distance between 1 and the next number: the largest relative error of one rounding.
inline double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : 0x1p-12; }

}  // namespace jit::reference
