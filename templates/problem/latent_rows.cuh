// Rows of MLA latents: e4m3 elements, a rotated part in bf16, and scales of groups of columns; their layouts and
// conversion.
//
//     latent_656   512 e4m3 | 4 scales of fp32 | 64 bf16                    (DeepSeek V3.2; FlashMLA, vLLM's fp8_ds_mla)
//     latent_584   448 e4m3 | 64 bf16; behind all rows of a page 8 bytes a row: 7 scales of e8m0        (DeepSeek V4)
//     latent_528   512 e4m3 | 16 scales of e8m0                                                         (DeepSeek V4.1)
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Bytes of a row: contiguous bytes, bytes of its scales at the end of a page, or else the offset of its scales.
/// `columns` are e4m3, in groups of `group` that share a scale; the others are bf16.
template <int row, int of_columns, int of_group, int first_scale, int end_bytes, int scale_bytes_each>
struct LatentRow {
  static constexpr int row_bytes = row, columns = of_columns, group = of_group, scales_begin = first_scale;
  static constexpr int page_end_bytes = end_bytes, scale_bytes = scale_bytes_each;
  static constexpr int rotated_begin = columns + (page_end_bytes == 0 ? columns / group * scale_bytes : 0);
  unsigned char bits;
};
struct latent_656 : LatentRow<656, 512, 128, 512, 0, 4> {};
struct latent_584 : LatentRow<576, 448, 64, 0, 8, 1> {};
struct latent_528 : LatentRow<528, 512, 32, 512, 0, 1> {};

template <class Element>
inline constexpr bool is_latent = requires {
  Element::rotated_begin;
};

/// Whether a kernel converts rows to 16 bits while it copies them; StoredLatent of its Config is their format.
template <class Config>
concept converts_latents = requires {
  typename Config::StoredLatent;
};
/// The element in which strides of keys are counted.
template <class Config>
struct RowElementOf {
  using type = typename Config::Element;
};
template <class Config>
requires converts_latents<Config>
struct RowElementOf<Config> {
  using type = unsigned char;
};
template <class Config>
using RowElement = typename RowElementOf<Config>::type;

/// 2^(bits - 127); NaN for 255.
JIT_DEVICE float power_of_two(unsigned bits) {
  if (bits == 255) return __int_as_float(0x7fffffff);
  return __int_as_float(bits == 0 ? 0x00400000 : static_cast<int>(bits << 23));
}

/// The scales of row `row` of a page with `page_size` rows; `start` is the row's first byte.
template <class Latent, class Byte>
JIT_DEVICE Byte* scales_of_row(Byte* start, int row, int page_size) {
  if constexpr (Latent::page_end_bytes == 0) return start + Latent::scales_begin;
  return start + static_cast<long long>(page_size - row) * Latent::row_bytes + row * Latent::page_end_bytes;
}

/// The scale of a group of columns.
template <class Latent>
JIT_DEVICE float group_scale(const unsigned char* scales, int group) {
  if constexpr (Latent::scale_bytes == 4) return reinterpret_cast<const float*>(scales)[group];
  return power_of_two(scales[group]);
}

/// Converts two numbers to 16 bits; fp16 saturates.
template <class Number>
JIT_DEVICE unsigned pack_saturated(float low, float high) {
  constexpr float largest = 65504;
  const auto bounded = [](float x) {
    if (!is_same<Number, fp16> || !(::fabsf(x) > largest)) return x;  // what is no number stays so
    return x < 0 ? -largest : largest;
  };
  return pack<Number>(bounded(low), bounded(high));
}

/// Columns that are converted together: of e4m3 8 bytes, of bf16 16, which become 16.
inline constexpr int latent_piece = 8;

/// Eight numbers of e4m3 as halves.
JIT_DEVICE void halves_of_latents(const unsigned (&stored)[2], unsigned (&wide)[4]) {
  halves_of_fp8_word<fp8_e4m3>(stored[0], wide[0], wide[1]);
  halves_of_fp8_word<fp8_e4m3>(stored[1], wide[2], wide[3]);
}
/// These times their scale, as numbers of a type.
template <class Number>
JIT_DEVICE void scale_latents(float scale, unsigned (&wide)[4]) {
#pragma unroll
  for (unsigned& pair : wide) {
    pair = pack_saturated<Number>(to_float(fp16{static_cast<unsigned short>(pair)}) * scale,
                                  to_float(fp16{static_cast<unsigned short>(pair >> 16)}) * scale);
  }
}
/// Eight numbers of bf16 become those of a type.
template <class Number>
JIT_DEVICE void convert_rotated(unsigned (&wide)[4]) {
  if constexpr (is_same<Number, bf16>) return;
#pragma unroll
  for (unsigned& pair : wide) {
    pair = pack_saturated<Number>(__int_as_float(static_cast<int>(pair << 16)),
                                  __int_as_float(static_cast<int>(pair & 0xffff0000u)));
  }
}

}  // namespace jit
