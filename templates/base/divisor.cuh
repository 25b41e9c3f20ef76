// Division by a number that a launch knows: a multiplication and a shift. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"
#include "base/upper_product.cuh"

namespace jit {

/// Divides n < 2^31 by `divisor`, as n · ⌈2^p / divisor⌉ / 2^p with p = 31 + ⌈log₂ divisor⌉ (Granlund and Montgomery,
/// Division by Invariant Integers using Multiplication, 1994).
struct Divisor {
  unsigned divisor;
  unsigned multiplier;  ///< 0: the divisor is 1
  unsigned shift;       ///< p − 32

  JIT_HOST_DEVICE unsigned quotient(unsigned n) const {
    return multiplier == 0 ? n : upper_product(n, multiplier) >> shift;
  }
};

/// `divisor` is from 1 to 2^31 − 1.
constexpr Divisor division_by(unsigned divisor) {
  unsigned bits = 0;  // ⌈log₂ divisor⌉
  while (1ull << bits < divisor) ++bits;
  if (bits == 0) return {divisor, 0, 0};
  return {divisor, static_cast<unsigned>(((1ull << (31 + bits)) + divisor - 1) / divisor), bits - 1};
}

}  // namespace jit
