// Rows of 8-bit latents (problem/latent_rows.cuh): groups of columns with scales of their own, and a rotated part of
// bf16. The new keys are the last columns of a row, the new values those before.
#pragma once

#include "append/packed_row.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "problem/latent_rows.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"

namespace jit {

/// The byte of the least power of two by which no number of a group is above 448, of which `largest` is the largest
/// magnitude; the power of two of 1e-4 / 448 at least.
JIT_DEVICE unsigned power_of_two_bits(float largest) {
  constexpr float least = 1e-4f, largest_float = 3.402823466e38f;
  const int bits = __float_as_int(__fdiv_rn(fmaxf(fminf(largest, largest_float), least), fp8_e4m3::largest));
  return static_cast<unsigned>((bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0));
}

/// Rounds columns from `first_column` on of a row of a page, of which a lane has pieces `lane`, `lane` + `lanes`, …, so many
/// in all, and writes them, where the row is there. By all lanes of a warp, which have one row.
template <class Latent, int lanes, int iterations>
JIT_DEVICE void store_latent_columns(const float (&x)[iterations][packed_piece], bool is_there, int lane,
                                     int pieces, int first_column, unsigned char* start, int row,
                                     int page_size) {
  constexpr int group = Latent::group / packed_piece;
  static_assert(lanes == warp_size && warp_size % group == 0, "a warp has a row");
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const int piece = iteration * lanes + lane, column = first_column + piece * packed_piece;
    const bool is_own = is_there && piece < pieces;
    float largest = 0;
    for (const float number : x[iteration]) largest = fmaxf(largest, is_own ? ::fabsf(number) : 0.0f);
    largest = combine_lanes<group>(largest, [](float a, float b) { return fmaxf(a, b); });
    if (!is_own) continue;
    if (column >= Latent::columns) {
      unsigned words[packed_piece / 2];
#pragma unroll
      for (int i = 0; i < packed_piece; i += 2)
        words[i / 2] = pack<bf16>(x[iteration][i], x[iteration][i + 1]);
      store_words<2 * packed_piece, packed_piece>(
          start + Latent::rotated_begin + (column - Latent::columns) * 2, words);
      continue;
    }
    unsigned char* const scales = scales_of_row<Latent>(start, row, page_size);
    const bool writes_scale = piece % group == 0;
    float scale;
    if constexpr (Latent::scale_bytes == 4) {
      scale = scale_of<fp8_e4m3>(largest);
      if (writes_scale) reinterpret_cast<float*>(scales)[column / Latent::group] = scale;
    } else {
      const unsigned bits = power_of_two_bits(largest);
      scale = power_of_two(bits);
      if (writes_scale) scales[column / Latent::group] = static_cast<unsigned char>(bits);
    }
    unsigned words[packed_piece / 4] = {};
#pragma unroll
    for (int i = 0; i < packed_piece; i += 2) {
      words[i / 4] |=
          pack_fp8<fp8_e4m3>(__fdiv_rn(x[iteration][i], scale), __fdiv_rn(x[iteration][i + 1], scale))
          << (i % 4 * 8);
    }
    store_words<packed_piece, packed_piece>(start + column, words);
  }
}

}  // namespace jit
