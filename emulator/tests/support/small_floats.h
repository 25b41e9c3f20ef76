// The formats of 8 and 16 bits for tests: values by definition, and rounding by searching among all codes.
#pragma once

#include <cstdint>
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
  bool is_nan(std::uint32_t code) const;
  bool is_subnormal(std::uint32_t code) const;
  /// The value of finite codes and infinity; NaN for NaN.
  double value(std::uint32_t code) const;
  /// The nearest code, ties to even; what is too large becomes the code behind the largest.
  std::uint32_t nearest(Quad x, bool negative_zero = false) const;
};

inline constexpr SmallFormat f16 = {"f16", 5, 10, 0x7bff, 0x7fff, true};
inline constexpr SmallFormat bf16 = {"bf16", 8, 7, 0x7f7f, 0x7fff, true};
inline constexpr SmallFormat e4m3 = {"e4m3", 4, 3, 0x7e, 0x7f, false};
inline constexpr SmallFormat e5m2 = {"e5m2", 5, 2, 0x7b, 0x7f, true};

}  // namespace jit::emulator::testing
