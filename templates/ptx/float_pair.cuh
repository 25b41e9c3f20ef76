// Two numbers of fp32 that one instruction computes, on sm_100 and later (PTX ISA, "fma", .f32x2).
#pragma once

#include "base/prelude.cuh"

namespace jit {

struct FloatPair {
  unsigned long long bits;

  JIT_DEVICE FloatPair(float x, float y) { asm("mov.b64 %0, {%1, %2};" : "=l"(bits) : "f"(x), "f"(y)); }
  JIT_DEVICE explicit FloatPair(float both) : FloatPair(both, both) {}

  JIT_DEVICE void store(float& x, float& y) const {
    asm("mov.b64 {%0, %1}, %2;" : "=f"(x), "=f"(y) : "l"(bits));
  }
  /// The sum of both.
  JIT_DEVICE float sum() const {
    float x, y;
    store(x, y);
    return x + y;
  }
};

JIT_DEVICE FloatPair add(FloatPair a, FloatPair b) {
  asm("add.rn.f32x2 %0, %1, %2;" : "=l"(a.bits) : "l"(a.bits), "l"(b.bits));
  return a;
}
JIT_DEVICE FloatPair add_rounding_down(FloatPair a, FloatPair b) {
  asm("add.rm.f32x2 %0, %1, %2;" : "=l"(a.bits) : "l"(a.bits), "l"(b.bits));
  return a;
}
JIT_DEVICE FloatPair subtract(FloatPair a, FloatPair b) {
  asm("sub.rn.f32x2 %0, %1, %2;" : "=l"(a.bits) : "l"(a.bits), "l"(b.bits));
  return a;
}
JIT_DEVICE FloatPair multiply(FloatPair a, FloatPair b) {
  asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(a.bits) : "l"(a.bits), "l"(b.bits));
  return a;
}
JIT_DEVICE FloatPair multiply_add(FloatPair a, FloatPair b, FloatPair c) {
  asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(a.bits) : "l"(a.bits), "l"(b.bits), "l"(c.bits));
  return a;
}

}  // namespace jit
