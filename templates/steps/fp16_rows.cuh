// Converts rows of bf16 to fp16, each times a power of two: fp16 has three more digits than bf16, but less range. A
// row's largest number moves to [2^14, 2^15): numbers of at least 2^-31 of it stay exact, smaller ones change by at
// most 2^-39 of it.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "ptx/stored_numbers.cuh"

namespace jit {

/// The scale that takes a row whose largest magnitude has these bits of bf16 to fp16, and the one that takes
/// products back.
struct Fp16Scale {
  float up;
  float down;
};
JIT_DEVICE Fp16Scale fp16_scale(int largest) {
  constexpr int bias = 127, digits = 7, target = 14;
  // From 2^-112 on, so that both are normal numbers; infinite ones and what is not a number stay so.
  const int exponent = maximum(largest >> digits, bias - 112) - bias;
  return {__int_as_float((target - exponent + bias) << 23), __int_as_float((exponent - target + bias) << 23)};
}

/// The bits of the larger magnitude of two numbers of bf16.
JIT_DEVICE int largest_bf16(unsigned word) {
  constexpr unsigned magnitudes = 0x7fff;
  return maximum(static_cast<int>(word & magnitudes), static_cast<int>(word >> 16 & magnitudes));
}
/// The largest of the lanes of a quad.
JIT_DEVICE int largest_of_quad(int largest) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2)
    largest = maximum(largest, __shfl_xor_sync(full_warp, largest, distance));
  return largest;
}
/// Two numbers of bf16 times a factor.
JIT_DEVICE unsigned bf16_to_fp16(unsigned word, float factor) {
  return pack<fp16>(__int_as_float(static_cast<int>(word << 16)) * factor,
                    __int_as_float(static_cast<int>(word & 0xffff0000u)) * factor);
}

/// The largest of a row's numbers, as bits without sign, of which the lane has words `half` and `half` + 2 of each step.
template <int steps>
JIT_DEVICE int largest_of_row(const unsigned (&registers)[steps][4], int half) {
  int largest = 0;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = half; i < 4; i += 2) largest = maximum(largest, largest_bf16(registers[step][i]));
  }
  return largest_of_quad(largest);
}

/// Converts the lane's part of a row of bf16 to fp16: words `half` and `half` + 2 of each step; a quad of lanes has the
/// whole row. Returns the factor of products with the row.
template <int steps>
JIT_DEVICE float row_to_fp16(unsigned (&registers)[steps][4], int half) {
  const Fp16Scale scale = fp16_scale(largest_of_row(registers, half));
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = half; i < 4; i += 2) registers[step][i] = bf16_to_fp16(registers[step][i], scale.up);
  }
  return scale.down;
}

/// As row_to_fp16, for a row of fp16, whose largest number moves to [2^15, 2^16).
template <int steps>
JIT_DEVICE float raise_fp16_row(unsigned (&registers)[steps][4], int half) {
  constexpr int bias = 127, fp16_bias = 15, digits = 10, target = 15;
  const int exponent = maximum(largest_of_row(registers, half) >> digits, 1) - fp16_bias;
  const float up = __int_as_float((target - exponent + bias) << 23);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = half; i < 4; i += 2) {
      const unsigned word = registers[step][i];
      registers[step][i] = pack<fp16>(to_float(fp16{static_cast<unsigned short>(word)}) * up,
                                      to_float(fp16{static_cast<unsigned short>(word >> 16)}) * up);
    }
  }
  return __int_as_float((exponent - target + bias) << 23);
}

/// Prepares the lane's part of a row for numbers of which those of words 2 and 3 of a step are 16 times too large
/// (digits_of_int4). Returns minus the sum of the row.
template <int steps>
JIT_DEVICE float prepare_for_digits(unsigned (&registers)[steps][4], int half) {
  float sum = 0;
#pragma unroll
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = half; i < 4; i += 2) {
      const unsigned word = registers[step][i];
      sum -= to_float(fp16{static_cast<unsigned short>(word)}) +
             to_float(fp16{static_cast<unsigned short>(word >> 16)});
    }
    registers[step][half + 2] = multiply_halves(registers[step][half + 2], 0x2c002c00u);
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) sum += __shfl_xor_sync(full_warp, sum, distance);
  return sum;
}

}  // namespace jit
