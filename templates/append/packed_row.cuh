// Rows of caches of which a byte has two numbers: int4 with a scale and a zero point for each row, e2m1 with a scale of a
// byte for each block of columns. A lane has eight columns of a row, one word, and a few lanes have a block.
#pragma once

#include "append/params.cuh"
#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "ptx/stored_numbers.cuh"

namespace jit {

/// Columns that a lane has of a row.
inline constexpr int packed_piece = 8;

/// The whole number nearest to `x`, of two as near ones the even one, from 0 to 15; 0 for what is no number.
JIT_DEVICE unsigned four_bits(float x) {
  return static_cast<unsigned>(minimum(maximum(__float2int_rn(x), 0), 15));
}

/// The number of e2m1 nearest to `x`, of two as near ones the even one; the largest one for what is larger.
JIT_DEVICE unsigned e2m1_bits(float x) {
  const float magnitude = fminf(::fabsf(x), 6.0f);
  // From 2 on they are 1 apart, from 4 on 2.
  const int bits = magnitude < 2   ? __float2int_rn(magnitude * 2)
                   : magnitude < 4 ? __float2int_rn(magnitude) + 2
                                   : __float2int_rn(magnitude / 2) + 4;
  return static_cast<unsigned>(bits) | (static_cast<unsigned>(__float_as_int(x)) >> 28 & 8u);
}

/// The byte of the scale with which numbers up to `largest` become e2m1. Of what is no number it is none either.
template <class Element>
JIT_DEVICE unsigned block_scale_bits(float largest) {
  constexpr float most = 6;
  if constexpr (is_same<Element, nvfp4_pair>) {
    return pack_fp8<fp8_e4m3>(__fdiv_rn(largest, most), 0) & 0xffu;
  } else {
    // The power of two of `largest` is that of 4, the largest power of two of e2m1. Attention reads these scales.
    constexpr int least = 106, greatest = 135, no_number = 255, of_four = 2;
    if (largest != largest) return no_number;
    return static_cast<unsigned>(
        minimum(maximum((__float_as_int(largest) >> 23) - of_four, least), greatest));
  }
}

/// Combines the numbers of each group of so many lanes side by side.
template <int group, class Combine>
JIT_DEVICE float combine_lanes(float x, Combine combine) {
#pragma unroll
  for (int distance = 1; distance < group; distance *= 2)
    x = combine(x, __shfl_xor_sync(full_warp, x, distance));
  return x;
}

/// Where a row goes, and its scales.
template <class Element>
struct PackedTarget {
  Element* row;
  float* scale;           ///< int4: written; else that of the head, read, where it is not null
  unsigned char* blocks;  ///< e2m1: written
  int pieces;             ///< of the row
};

/// Rounds a row of numbers, of which a lane has pieces `lane`, `lane` + `lanes`, …, and writes it, where it is there. By all
/// lanes of a warp.
template <class Element, int lanes, int iterations>
JIT_DEVICE void store_packed_row(const float (&x)[iterations][packed_piece], bool is_there, int lane,
                                 const PackedTarget<Element>& target) {
  const auto is_own = [&](int iteration) { return is_there && iteration * lanes + lane < target.pieces; };
  const auto store = [&](int iteration, const auto& bits_of) {
    unsigned word = 0;
#pragma unroll
    for (int i = 0; i < packed_piece; ++i) word |= bits_of(x[iteration][i]) << (4 * i);
    // Rows of whole words may begin anywhere.
    unsigned char* const bytes =
        reinterpret_cast<unsigned char*>(target.row) + (iteration * lanes + lane) * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(word >> (8 * i));
  };
  if constexpr (constexpr int block = scale_columns_of<Element>; block == 0) {
    constexpr float largest_float = 3.402823466e38f, steps = 15, least_scale = 1e-6f;
    float least = largest_float, most = -largest_float, sum = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (!is_own(iteration)) continue;
      for (const float number : x[iteration]) {
        least = fminf(least, number);
        most = fmaxf(most, number);
        sum = max_nan(sum, number);
      }
    }
    least = combine_lanes<lanes>(least, [](float a, float b) { return fminf(a, b); });
    most = combine_lanes<lanes>(most, [](float a, float b) { return fmaxf(a, b); });
    sum = combine_lanes<lanes>(sum, [](float a, float b) { return max_nan(a, b); });
    if (!is_there) return;
    least = fmaxf(least, -largest_float);
    const float scale =
        fmaxf(fminf(__fdiv_rn(fminf(most, largest_float) - least, steps), largest_float), least_scale);
    const float inverse = __fdiv_rn(1.0f, scale),
                zero = static_cast<float>(four_bits(__fdiv_rn(-least, scale)));
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (is_own(iteration))
        store(iteration, [&](float number) { return four_bits(__fmaf_rn(number, inverse, zero)); });
    }
    // A row with what is no number shows it by its scale.
    const int bits = sum != sum ? 0x7fc00000 : __float_as_int(scale);
    if (lane == 0) *target.scale = __int_as_float((bits & ~15) | static_cast<int>(zero));
  } else {
    constexpr int group = block / packed_piece;
    static_assert(lanes >= group, "lanes of a row have whole blocks");
    const float of_head = is_there && target.scale != nullptr ? *target.scale : 1.0f;
    for (int iteration = 0; iteration < iterations; ++iteration) {
      float largest = 0;
      if (is_own(iteration)) {
        for (const float number : x[iteration])
          largest = max_nan(largest, __fdiv_rn(::fabsf(number), ::fabsf(of_head)));
      }
      largest = combine_lanes<group>(largest, [](float a, float b) { return max_nan(a, b); });
      if (!is_own(iteration)) continue;
      const unsigned bits = block_scale_bits<Element>(largest);
      const float scale = block_scale<Element>(static_cast<unsigned char>(bits));
      store(iteration, [&](float number) {
        return scale == 0 ? 0u : e2m1_bits(__fdiv_rn(__fdiv_rn(number, of_head), scale));
      });
      const int piece = iteration * lanes + lane;
      if (piece % group == 0) target.blocks[piece / group] = static_cast<unsigned char>(bits);
    }
  }
}

}  // namespace jit
