// Powers of 2 by a polynomial, as in FlashAttention-4 for a part of its exponentials: the special function unit is the
// bottleneck of softmax, while FMA units have time left.
#pragma once

#include "base/prelude.cuh"
#include "ptx/float_pair.cuh"
#include "ptx/math.cuh"

namespace jit {

/// x = 2^x and y = 2^y, to 3e-6 of it, for exponents below 128; 0 below −127. NaN stays NaN.
///
/// 2^x = 2^n · 2^f, where n is x rounded down. The polynomial in f, which is at least 0 and below 1, is the one of degree 4
/// with the least relative error of those that are 1 at 0: an exponent of 0 must give 1.
JIT_DEVICE void polynomial_exp2(float& x, float& y) {
  constexpr float least = -127.0f;
  constexpr float integers =
      12582912.0f;  // 1.5 · 2^23: added to it, a number becomes an integer, in the lower bits
  const FloatPair exponents(max_nan(x, least), max_nan(y, least)), offset(integers);
  const FloatPair rounded = add_rounding_down(exponents, offset);
  const FloatPair f = subtract(exponents, subtract(rounded, offset));
  FloatPair sum(0.0134266643f);
  sum = multiply_add(sum, f, FloatPair(0.0522425063f));
  sum = multiply_add(sum, f, FloatPair(0.2412801981f));
  sum = multiply_add(sum, f, FloatPair(0.6930448413f));
  sum = multiply_add(sum, f, FloatPair(1.0f));  // mutate: PolynomialWithoutConstant
  float n, m;
  rounded.store(n, m);
  const auto power = [](float integer) {
    return __int_as_float(
        static_cast<int>((static_cast<unsigned>(__float_as_int(integer)) << 23) + 0x3f800000u));
  };
  multiply(sum, {power(n), power(m)}).store(x, y);
}

}  // namespace jit
