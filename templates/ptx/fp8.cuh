// Elements of 8 bits (OCP, "8-bit Floating Point Specification"), floats rounded to them: to nearest even, what is too
// large to the largest number; and numbers of 16 bits and floats made of them, which is exact. By "cvt" (PTX ISA) where
// there is one.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

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

template <class Element>
inline constexpr bool is_fp8 = sizeof(Element) == 1;

/// Four elements that are 1.
template <class Element>
inline constexpr int four_ones = (Element::bias << Element::mantissa_bits) * 0x01010101;

/// By integer arithmetic, for GPUs without the instruction.
template <class Element>
JIT_DEVICE unsigned fp8_bits(float x) {
  constexpr int dropped = 23 - Element::mantissa_bits;
  constexpr float least_normal = 1.0f / (1u << (Element::bias - 1));
  constexpr float steps = static_cast<float>(1u << (Element::bias - 1 + Element::mantissa_bits));
  const unsigned sign = static_cast<unsigned>(__float_as_int(x)) >> 24 & 0x80u;
  if (x != x) return 0x7f;
  const float magnitude = ::fminf(::fabsf(x), Element::largest);  // those of a Dual may be nearer
  // Below the normal numbers they are as far apart as at the least of these.
  if (magnitude < least_normal) return sign | static_cast<unsigned>(__float2int_rn(magnitude * steps));
  unsigned bits = static_cast<unsigned>(__float_as_int(magnitude));
  bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return sign | ((bits >> dropped) - ((127u - Element::bias) << Element::mantissa_bits));
}

/// Two floats as elements, `low` in the low byte; elements of other kinds, which are stored by other code, as zeros.
template <class Element>
JIT_DEVICE unsigned pack_fp8(float low, float high) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  if constexpr (is_same<Element, fp8_e4m3>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  if constexpr (requires { Element::mantissa_bits; })
    return fp8_bits<Element>(low) | fp8_bits<Element>(high) << 8;
  return 0;
#endif
}

/// Four floats as e4m3 elements, the first in the low byte.
JIT_DEVICE unsigned pack_e4m3(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  // In one statement: the assembler then makes no third instruction.
  unsigned packed;
  asm("{.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\nmov.b32 %0, {low, high};\n}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
#else
  return pack_fp8<fp8_e4m3>(a, b) | pack_fp8<fp8_e4m3>(c, d) << 16;
#endif
}

/// Four floats rounded to whole numbers from 0 to 255, the first in the low byte. The assembler makes one instruction of
/// two of them.
JIT_DEVICE unsigned pack_rounded(float a, float b, float c, float d) {
  unsigned packed;
  asm("{.reg .s32 a, b, c, d;\n.reg .b32 upper;\ncvt.rni.s32.f32 a, %1;\ncvt.rni.s32.f32 b, %2;\n"
      // mutate: PairsOfBytesExchanged
      "cvt.rni.s32.f32 c, %3;\ncvt.rni.s32.f32 d, %4;\ncvt.pack.sat.u8.s32.b32 upper, d, c, 0;\n"
      "cvt.pack.sat.u8.s32.b32 %0, b, a, upper;\n}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

/// Two fp16 numbers in a word plus the first two and the last two of four e4m3 elements: from sm_89 on.
JIT_DEVICE unsigned add_e4m3(unsigned halves, unsigned elements) {
  asm("{.reg .b16 low, high;\n.reg .b32 first, last;\nmov.b32 {low, high}, %1;\n"
      // mutate: SumsOfTheFirstPairs
      "cvt.rn.f16x2.e4m3x2 first, low;\ncvt.rn.f16x2.e4m3x2 last, high;\nadd.rn.f16x2 first, first, last;\n"
      "add.rn.f16x2 %0, %0, first;\n}"
      : "+r"(halves)
      : "r"(elements));
  return halves;
}

/// Their sum.
JIT_DEVICE float sum_of_halves(unsigned halves) {
  float low, high;
  asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
      : "=f"(low), "=f"(high)
      : "r"(halves));
  return low + high;  // mutate: SumsOfOneHalf
}

/// e4m3 elements, in the upper halves of both words of 16 bits, as fp16, by integer arithmetic for GPUs without the
/// instruction: the exponent is moved to fp16's exponent bits, whose bias is larger by 8.
JIT_DEVICE unsigned half_bits_of_e4m3(unsigned pair) {
  constexpr unsigned two_to_8 = 0x5c005c00u, magnitudes = 0x7f007f00u, signs = 0x80008000u;
  unsigned scaled;
  asm("mul.rn.f16x2 %0, %1, %2;"
      : "=r"(scaled)
      : "r"((pair & signs) | (pair & magnitudes) >> 1), "r"(two_to_8));
  const unsigned nan = ((pair & magnitudes) + 0x01000100u) & signs;  // of all ones, whose carry is here
  return scaled | (nan - (nan >> 6));
}

/// The two elements in the low half of `pair`, the first in its low byte, as fp16.
template <class Element>
JIT_DEVICE unsigned halves_of_fp8(unsigned pair) {
  if constexpr (is_same<Element, fp8_e5m2>) {
    return pick_bytes(pair, 0, 0x1404);  // the upper byte of an fp16 number is an e5m2 one
  } else {
#if __CUDA_ARCH__ >= 890
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(pair)));
    return halves;
#else
    return half_bits_of_e4m3(pick_bytes(pair, 0, 0x1404));
#endif
  }
}

/// The four elements of a word, the first in its low byte, as two pairs of fp16.
template <class Element>
JIT_DEVICE void halves_of_fp8_word(unsigned word, unsigned& first, unsigned& second) {
#if __CUDA_ARCH__ >= 890
  if constexpr (is_same<Element, fp8_e4m3>) {
    // In one statement: the assembler then reads the upper half where it is.
    asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(first), "=r"(second)
        : "r"(word));
    return;
  }
#endif
  first = halves_of_fp8<Element>(word);
  second = halves_of_fp8<Element>(word >> 16);
}

/// Two fp16 numbers as ones of 16 bits.
template <class Number>
JIT_DEVICE unsigned from_halves(unsigned halves) {
  if constexpr (is_same<Number, fp16>) return halves;
  return pack<Number>(to_float(fp16{static_cast<unsigned short>(halves)}),
                      to_float(fp16{static_cast<unsigned short>(halves >> 16)}));
}

/// The two elements in the low half of `pair`, the first in its low byte, as numbers of 16 bits.
template <class Number, class Element>
JIT_DEVICE unsigned upcast_fp8(unsigned pair) {
  return from_halves<Number>(halves_of_fp8<Element>(pair));
}

JIT_DEVICE float to_float(fp8_e4m3 x) {
  return to_float(fp16{static_cast<unsigned short>(upcast_fp8<fp16, fp8_e4m3>(x.bits))});
}
JIT_DEVICE float to_float(fp8_e5m2 x) {
  return to_float(fp16{static_cast<unsigned short>(upcast_fp8<fp16, fp8_e5m2>(x.bits))});
}

/// The scale with which `magnitude` becomes the largest element; elements times it are numbers again. Of less than
/// 2^-100 it is 1, and an infinity counts as the largest float.
template <class Element>
JIT_DEVICE float scale_of(float magnitude) {
  constexpr float largest_float = 3.402823466e38f;
  const float bounded = fminf(magnitude, largest_float);
  return bounded < 0x1p-100f ? 1.0f : __fdiv_rn(bounded, Element::largest);
}

}  // namespace jit
