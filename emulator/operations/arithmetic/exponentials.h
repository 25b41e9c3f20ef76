// 2^x and tanh in double precision, in loops that vectorize. Hardware approximations are rounded from them:
// nearly always correctly, never off by more than 0.501 units in the last place.
#pragma once

#include <bit>
#include <cstdint>

#include "operations/arithmetic/numbers.h"

namespace jit::emulator {

/// 2^x for |x| ≤ ½ to a relative error of 2^−40. A minimax polynomial of degree 8 (Remez' algorithm).
inline double exp2_of_fraction(double x) {
  double sum = 0x1.61afcff7d86c7p-20;
  sum = sum * x + 0x1.00dad22c7b4eep-16;
  sum = sum * x + 0x1.430acca1cd4a3p-13;
  sum = sum * x + 0x1.5d87483892c91p-10;
  sum = sum * x + 0x1.3b2ab5c52a45bp-7;
  sum = sum * x + 0x1.c6b08dd46d011p-5;
  sum = sum * x + 0x1.ebfbdff9319d0p-3;
  sum = sum * x + 0x1.62e42fef86160p-1;
  return sum * x + 0x1.ffffffffff7a3p-1;
}

/// 2^x to a relative error of 2^−40, with x clamped to ±1000. Any number for NaN.
inline constexpr auto exp2_of = [](double x) {
  x = x > -1000.0 ? x : -1000.0;
  x = x < 1000.0 ? x : 1000.0;
  const double shifted = x + 0x1.8p52;  // its low bits hold the nearest whole number
  const double power = exp2_of_fraction(x - (shifted - 0x1.8p52));
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(power) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
};

/// tanh x to a relative error of 2^−33; keeps the sign of zero. Any number for NaN.
inline constexpr auto tanh_of = [](double x) {
  const double square = x * x;
  const double near_zero = x * (1.0 - square * (1.0 / 3 - square * (2.0 / 15 - square * (17.0 / 315))));
  const double power = exp2_of(x * 0x1.71547652b82fep+1);  // e^(2x)
  const double elsewhere = 1.0 - 2.0 / (power + 1.0);
  return square < 0x1p-10 ? near_zero : elsewhere;
};

}  // namespace jit::emulator
