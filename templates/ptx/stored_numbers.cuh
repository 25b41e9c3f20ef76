// Numbers of caches other than FP8: int8, and two 4-bit numbers in a byte, the first in its low half.
// A word becomes 16-bit pairs by few instructions, all exact:
//
//     int8, int4    the digits of a 16-bit number whose exponent makes them whole; its power of two is taken away
//     e2m1          sign and three bits where fp16 has them, which is the number times 2^-14 (OCP, "Microscaling Formats")
//
// Pair i of the eight numbers of a word consists of numbers i and i + 4: the word's halves.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"

namespace jit {

struct int8_number {
  unsigned char bits;
  static constexpr float largest = 127;
};
/// Numbers from 0 to 15 less a zero point, which the scale of their row has in its lowest four bits (vLLM,
/// int4_per_token_head).
struct int4_pair {
  unsigned char bits;
  static constexpr int numbers = 2, scale_columns = 0;
};
/// e2m1, and a scale of e4m3 for each 16 columns (NVFP4), or a power of two, e8m0, for each 32 (MXFP4).
struct nvfp4_pair {
  unsigned char bits;
  static constexpr int numbers = 2, scale_columns = 16;
};
struct mxfp4_pair {
  unsigned char bits;
  static constexpr int numbers = 2, scale_columns = 32;
};

/// a · b + c of two numbers of fp16, or bf16.
template <class Number>
JIT_DEVICE unsigned multiply_add_pair(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  if constexpr (is_same<Number, fp16>) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}
JIT_DEVICE unsigned multiply_halves(unsigned a, unsigned b) {
  unsigned d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// (a & mask) | b in one instruction: of two statements the assembler makes two where both have constants.
JIT_DEVICE unsigned and_or(unsigned a, unsigned mask, unsigned b) {
  unsigned c;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(c) : "r"(a), "r"(mask), "r"(b));
  return c;
}

/// A half of a word in both halves, which an operand of a multiplication may be without an instruction.
JIT_DEVICE unsigned half_twice(unsigned word, int half) {
  unsigned twice;
  if (half == 0) {
    asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}"
        : "=r"(twice)
        : "r"(word));
  } else {
    asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}"
        : "=r"(twice)
        : "r"(word));
  }
  return twice;
}
/// A number in both halves of a word.
JIT_DEVICE constexpr unsigned twice(unsigned bits) { return bits * 0x10001u; }
/// 1 in a 16-bit type, and the number of which the lowest digit is 1: 2^10 and 2^7.
template <class Number>
inline constexpr unsigned one_of = is_same<Number, fp16> ? 0x3c00u : 0x3f80u;
template <class Number>
inline constexpr unsigned digits_of = is_same<Number, fp16> ? 0x6400u : 0x4300u;
inline constexpr unsigned sign_of_both = 0x80008000u;

/// Pairs of int8 numbers whose bytes stand in the low bytes of the halves of `spread`; the high ones are those of
/// digits_of<Number>, and of fp16 the sign bits of numbers are inverted.
template <class Number>
JIT_DEVICE unsigned numbers_of_digits(unsigned spread) {
  if constexpr (is_same<Number, fp16>) {
    // As a number without sign it is larger by 128.
    return multiply_add_pair<fp16>(spread, twice(one_of<fp16>), twice(0xe480));
  } else {
    // bf16 has seven digits: the eighth makes of 2^7, which is taken away, 2^8.
    return multiply_add_pair<bf16>(spread & twice(0xff80), twice(one_of<bf16>) ^ sign_of_both,
                                   spread & twice(0xff7f));
  }
}
template <class Number>
JIT_DEVICE unsigned digits_of_int8(unsigned word) {
  return is_same<Number, fp16> ? word ^ 0x80808080u : word;
}

/// The two numbers of int8 in the low half of `pair`.
template <class Number>
JIT_DEVICE unsigned numbers_of_int8(unsigned pair) {
  return numbers_of_digits<Number>(pick_bytes(digits_of_int8<Number>(pair), digits_of<Number> >> 8, 0x4140));
}

template <>
JIT_DEVICE unsigned halves_of_fp8<int8_number>(unsigned pair) {
  return numbers_of_int8<fp16>(pair);
}
template <>
JIT_DEVICE unsigned upcast_fp8<bf16, int8_number>(unsigned pair) {
  return numbers_of_int8<bf16>(pair);
}
/// Bytes 0 and 2 of a word side by side, and 1 and 3, for the pairs of `upcast_half` with `is_crossed`.
template <class Element>
JIT_DEVICE unsigned cross_bytes(unsigned word) {
  return is_same<Element, int8_number> ? word : pick_bytes(word, 0, 0x3120);
}
/// A pair of the four elements of a word as 16-bit numbers: those of its low half, or high one. With `is_crossed`,
/// elements 0 and 2, or 1 and 3, of a word that cross_bytes left.
template <class Number, class Element, int half, bool is_crossed = false>
JIT_DEVICE unsigned upcast_half(unsigned word) {
  if constexpr (is_same<Element, int8_number>) {
    constexpr unsigned first = is_crossed ? half : 2 * half, second = is_crossed ? half + 2 : 2 * half + 1;
    return numbers_of_digits<Number>(
        pick_bytes(digits_of_int8<Number>(word), digits_of<Number> >> 8, 0x4040 | first | second << 8));
  } else {
    return upcast_fp8<Number, Element>(word >> 16 * half);
  }
}
/// Two floats rounded to int8, to nearest even, what is too large to the largest number; 0 for what is none.
template <>
JIT_DEVICE unsigned pack_fp8<int8_number>(float low, float high) {
  const auto bits = [](float x) {
    return static_cast<unsigned>(minimum(maximum(__float2int_rn(x), -128), 127)) & 0xffu;
  };
  return bits(low) | bits(high) << 8;
}
JIT_DEVICE float to_float(int8_number x) { return static_cast<float>(static_cast<signed char>(x.bits)); }

/// The zero point of a row of int4 beside its scale, and the scale.
JIT_DEVICE unsigned zero_point_of(int scale) { return static_cast<unsigned>(scale) & 15u; }
JIT_DEVICE float without_zero_point(int scale) { return __int_as_float(scale & ~15); }

/// The pairs of a word of eight numbers of int4 less their zero points, of which `zeros` has that of each half.
template <class Number>
JIT_DEVICE void pairs_of_int4(unsigned word, unsigned zeros, unsigned (&pairs)[4]) {
  const unsigned one = twice(one_of<Number>), digits = twice(digits_of<Number>);
  const unsigned less = (digits | zeros) ^ sign_of_both;
  const auto lowest = [&](unsigned bits) {
    return multiply_add_pair<Number>(and_or(bits, twice(15), digits), one, less);
  };
  pairs[0] = lowest(word);
  pairs[2] = lowest(word >> 8);
  if constexpr (is_same<Number, fp16>) {
    // Digits four places up are the number times 16.
    const unsigned sixteenth = twice(0x2c00), less_of_64 = (twice(0x5400) | zeros << 4) ^ sign_of_both;
    const auto upper = [&](unsigned bits) {
      return multiply_add_pair<fp16>(and_or(bits, twice(0xf0), digits), sixteenth, less_of_64);
    };
    pairs[1] = upper(word);
    pairs[3] = upper(word >> 8);
  } else {
    pairs[1] = lowest(word >> 4);
    pairs[3] = lowest(word >> 12);
  }
}

/// The pairs of a word of eight numbers of int4 as digits of subnormal numbers, which tensor cores multiply as they are:
/// n units of the last place, and 16 n of pairs 1 and 3.
JIT_DEVICE void digits_of_int4(unsigned word, unsigned (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned bits = word >> 8 * i;
    pairs[2 * i] = bits & twice(0x0f);
    pairs[2 * i + 1] = bits & twice(0xf0);
  }
}

/// Bits of b where the mask is 1, else of a.
JIT_DEVICE unsigned select_bits(unsigned a, unsigned b, unsigned mask) {
  unsigned c;
  asm("lop3.b32 %0, %1, %2, %3, 0xd8;" : "=r"(c) : "r"(a), "r"(b), "r"(mask));
  return c;
}

/// The pairs of a word of eight numbers of e2m1, times 2^-14, times two factors of fp16. They are made of the upper bytes
/// of four numbers of fp16 at a time, lower halves of bytes first. Even bytes move up by prmt, or, of the last `shifts` of
/// two times, by a shift, which is a multiplication and spares the ALU, for a register more.
template <int shifts = 0>
JIT_DEVICE void pairs_of_e2m1(unsigned word, unsigned factors, unsigned (&pairs)[4]) {
  constexpr unsigned signs = 0x80808080u;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned numbers = i == 0 ? word << 1 : word >> 3, signed_ones = i == 0 ? word << 4 : word;
    if (i >= 2 - shifts) {
      const unsigned bytes = select_bits(numbers, signed_ones, signs);
      pairs[i] = multiply_halves(bytes << 8 & twice(0x8e00), factors);
      pairs[i + 2] = multiply_halves(bytes & twice(0x8e00), factors);
    } else {
      const unsigned bytes = and_or(numbers, 0x0e0e0e0eu, signed_ones & signs);
      pairs[i] = multiply_halves(pick_bytes(bytes, 0, 0x2404), factors);
      pairs[i + 2] = multiply_halves(bytes & twice(0xff00), factors);
    }
  }
}

/// The factor by which e2m1 times its factor is too small. NVFP4 is shrunk by 2^14 and stays exact; MXFP4's powers of two
/// would underflow, hence 2^7.
template <class Element>
inline constexpr float e2m1_shrinks = is_same<Element, nvfp4_pair> ? 0x1p14f : 0x1p7f;

/// Factors of fp16 of two scales of blocks, the first in the low byte: each times 2^14 / e2m1_shrinks.
template <class Element>
JIT_DEVICE unsigned factors_of_scales(unsigned pair) {
  if constexpr (is_same<Element, nvfp4_pair>) {
    return halves_of_fp8<fp8_e4m3>(pair);
  } else {
    // 2^(bits - 127), which fp16 has from 2^-21 to 2^8. What is smaller is 0, what is larger is no number.
    const auto of = [](unsigned bits) {
      constexpr unsigned least = 106, most = 135, nan = 0x7e00;
      return bits > most ? nan : bits < least ? 0u : (bits - least + 1) << 10;
    };
    return of(pair & 0xff) | of(pair >> 8 & 0xff) << 16;
  }
}

/// One number of a row of pairs: column `column`, without scales.
template <class Element>
JIT_DEVICE float number_of_pair(const Element* row, int column, unsigned zero_point) {
  const unsigned four = static_cast<unsigned>(row[column / 2].bits) >> (column % 2 * 4) & 15u;
  if constexpr (scale_columns_of<Element> == 0) {
    return static_cast<float>(static_cast<int>(four) - static_cast<int>(zero_point));
  } else {
    const float magnitude =
        four % 8 < 2 ? 0.5f * static_cast<float>(four % 2)
                     : static_cast<float>(2 + four % 2) * static_cast<float>(1 << (four % 8 / 2)) / 4;
    return four < 8 ? magnitude : -magnitude;
  }
}

/// The scale of a block, by its byte.
template <class Element>
JIT_DEVICE float block_scale(unsigned char bits) {
  constexpr float by = e2m1_shrinks<Element> / 0x1p14f;
  return by * to_float(fp16{static_cast<unsigned short>(factors_of_scales<Element>(bits))});
}

}  // namespace jit
