// Elements of 8 bits (OCP, "8-bit Floating Point Specification"), and floats rounded to them: to nearest even, what is too
// large to the largest number, by "cvt" (PTX ISA) where there is one.
#pragma once

#include "base/prelude.cuh"

namespace jit {

struct fp8_e4m3 {
  unsigned char bits;
  static constexpr int mantissa_bits = 3, bias = 7;
  static constexpr float largest = 448;
};
struct fp8_e5m2 {
  unsigned char bits;
  static constexpr int mantissa_bits = 2, bias = 15;
  static constexpr float largest = 57344;
};

/// By integer arithmetic, for GPUs without the instruction.
template <class Element>
__device__ __forceinline__ unsigned fp8_bits(float x) {
  constexpr int dropped = 23 - Element::mantissa_bits;
  constexpr float least_normal = 1.0f / (1u << (Element::bias - 1));
  constexpr float steps = static_cast<float>(1u << (Element::bias - 1 + Element::mantissa_bits));
  const unsigned sign = static_cast<unsigned>(__float_as_int(x)) >> 24 & 0x80u;
  if (x != x) return 0x7f;
  const float magnitude = fminf(fabsf(x), Element::largest);
  // Below the normal numbers they are as far apart as at the least of these.
  if (magnitude < least_normal) return sign | static_cast<unsigned>(__float2int_rn(magnitude * steps));
  unsigned bits = static_cast<unsigned>(__float_as_int(magnitude));
  bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return sign | ((bits >> dropped) - ((127u - Element::bias) << Element::mantissa_bits));
}

/// Two floats as elements, `low` in the low byte.
template <class Element>
__device__ __forceinline__ unsigned pack_fp8(float low, float high) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  if constexpr (is_same<Element, fp8_e4m3>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return fp8_bits<Element>(low) | fp8_bits<Element>(high) << 8;
#endif
}

}  // namespace jit
