// Rows of latents with elements of e4m3, a rotated part of bf16, and scales of groups of columns: where each lies, and
// their numbers.
//
//     latent_656   512 e4m3 | 4 scales of fp32 | 64 bf16                    (DeepSeek V3.2; FlashMLA, vLLM's fp8_ds_mla)
//     latent_584   448 e4m3 | 64 bf16; behind all rows of a page 8 bytes a row: 7 scales of e8m0        (DeepSeek V4)
//     latent_528   512 e4m3 | 16 scales of e8m0                                                         (DeepSeek V4.1)
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Bytes of a row: those that lie side by side, those of its scales at the end of a page, or else where they begin.
/// `columns` are those of e4m3, of which so many share a scale; the others are of bf16.
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

/// 2^(bits - 127); no number for 255.
JIT_DEVICE float power_of_two(unsigned bits) {
  if (bits == 255) return __int_as_float(0x7fffffff);
  return __int_as_float(bits == 0 ? 0x00400000 : static_cast<int>(bits << 23));
}

/// Where the scales of row `row` of a page of so many lie; `start` is where the row begins.
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

}  // namespace jit
