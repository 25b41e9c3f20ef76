// Approximate functions and conversions, one instruction each (PTX ISA, "Floating Point Instructions",
// "cvt").
#pragma once

#include "base/prelude.cuh"

namespace jit {

/// 2^x; ex2(−inf) = 0.
JIT_DEVICE float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger one; NaN when either is.
JIT_DEVICE float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

/// The larger one of two that are not negative, whose bits have their order: the assembler makes one instruction of
/// two such maxima. In one statement, because the compiler would keep x and y as integers all along, and move
/// them to the registers of a wgmma at a place where it must not.
JIT_DEVICE float max_not_negative(float x, float y) {
  float z;
  asm("{.reg .s32 a, b;\nmov.b32 a, %1;\nmov.b32 b, %2;\nmax.s32 a, a, b;\nmov.b32 %0, a;\n}"
      : "=f"(z)
      : "f"(x), "f"(y));
  return z;
}

/// log2(x); lg2(0) = −inf.
JIT_DEVICE float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x.
JIT_DEVICE float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / (1 + e^−x).
JIT_DEVICE float sigmoid(float x) { return rcp(1.0f + ex2(x * -log2_e)); }

/// tanh(x), relative error at most 2^-11: below the rounding of a 16-bit score.
JIT_DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The bytes of `low` and `high`, of which there are 0 to 7, that the four digits of `selector` name, the last one first.
/// Of a digit from 8 on, all bits of the byte are as the uppermost one of the byte that is named by 8 less.
JIT_DEVICE unsigned pick_bytes(unsigned low, unsigned high, unsigned selector) {
  unsigned picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(selector));
  return picked;
}

/// Compares each half of two registers, which hold fp16: all its bits if that of `x` is at most that of `y`, else none.
JIT_DEVICE unsigned at_most_masks(unsigned x, unsigned y) {
  unsigned masks;
  // mutate: TheThresholdItselfIsDroppedOfPairs
  asm("set.le.u32.f16x2 %0, %1, %2;" : "=r"(masks) : "r"(x), "r"(y));
  return masks;
}

/// Rounds two floats to 16 bits and packs them, `low` in the low half.
template <class Element>
JIT_DEVICE unsigned pack(float low, float high) {
  unsigned packed;
  if constexpr (is_same<Element, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

JIT_DEVICE float to_float(bf16 x) { return __int_as_float(static_cast<int>(x.bits) << 16); }
JIT_DEVICE float to_float(fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
JIT_DEVICE float to_float(float x) { return x; }

}  // namespace jit
