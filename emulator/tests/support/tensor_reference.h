// Tensor-core sums computed one by one in doubles, beside which the emulator's are held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "machine/types.h"

namespace jit::emulator::testing {

/// A small binary format, as IEEE 754 describes them.
struct NumberFormat {
  Type type;
  int bits, exponent_bits, fraction_bits;
  bool has_infinity;
  int ignored_bits = 0;      ///< at the low end, of what lies in memory
  bool has_numbers = false;  ///< and nothing else: no infinity, no NaN

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// The exponent field and the fraction of what lies in memory.
  int field(std::uint32_t raw) const {
    return static_cast<int>(raw >> ignored_bits >> fraction_bits & ((1u << exponent_bits) - 1));
  }
  std::uint32_t fraction(std::uint32_t raw) const {
    return raw >> ignored_bits & ((1u << fraction_bits) - 1);
  }
  double value(std::uint32_t raw) const;
  /// The exponent of the significand's unit; subnormals have that of the least normal number.
  int exponent(std::uint32_t raw) const { return std::max(field(raw), 1) - bias(); }
};

inline constexpr NumberFormat f16_numbers = {Type::f16, 16, 5, 10, true};
inline constexpr NumberFormat bf16_numbers = {Type::bf16, 16, 8, 7, true};
inline constexpr NumberFormat tf32_numbers = {Type::tf32, 32, 8, 10, true, 13};
inline constexpr NumberFormat e4m3_numbers = {Type::e4m3, 8, 4, 3, false};
inline constexpr NumberFormat e5m2_numbers = {Type::e5m2, 8, 5, 2, true};
inline constexpr NumberFormat e2m3_numbers = {Type::e2m3, 6, 2, 3, false, 0, true};
inline constexpr NumberFormat e3m2_numbers = {Type::e3m2, 6, 3, 2, false, 0, true};
inline constexpr NumberFormat e2m1_numbers = {Type::e2m1, 4, 2, 1, false, 0, true};
inline constexpr NumberFormat f32_numbers = {Type::f32, 32, 8, 23, true};

/// Bits of a value in f32 or f16 that has it exactly or is beyond its range.
std::uint32_t encode_exact(const NumberFormat& format, double value);

/// The assumed rule of the sum of products.
struct SumRule {
  int group;
  int fraction_bits;
  bool to_f16 = false;       ///< the result; else f32
  int kept_fraction = 23;    ///< of f32: bits that are left
  bool through_f16 = false;  ///< 8-bit elements are summed in two rounds and the accumulator is added at last
};

/// Σ a[i] b[i] + c: bits of the accumulator in, bits out.
std::uint32_t reference_sum(const SumRule& rule, const NumberFormat& a, const NumberFormat& b,
                            const std::vector<std::uint32_t>& x, const std::vector<std::uint32_t>& y,
                            std::uint32_t c);

/// Random elements: mostly around 1, some zeros and subnormals, and with `wild` every bit pattern.
std::uint32_t random_element(const NumberFormat& format, std::mt19937& random, bool wild);

}  // namespace jit::emulator::testing
