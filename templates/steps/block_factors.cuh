// Softmax of scores with a factor for each block of keys: the product of the scales of 8-bit query and key blocks, as
// in "FlashAttention-3" (Shah et al.). Each block's maximum is multiplied by its factor once; exponents by their
// multiply-add.
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Keys of a tile that always share a factor: a whole block, or half of one.
constexpr int keys_of_factor(int tile_kv) {
  return tile_kv % scale_block_rows == 0 ? scale_block_rows : scale_block_rows / 2;
}

template <class Scores, int tile_kv>
class BlockFactors {
  static constexpr int keys = keys_of_factor(tile_kv);
  static_assert(tile_kv % keys == 0);
  static constexpr int column_blocks = keys / Scores::Layout::block_columns;  // of a factor

 public:
  /// Sets the factors of a tile: its scales at shared address `scales`, times `of_queries`. Factors are positive or
  /// NaN: 0 times the −inf of a dropped key would be NaN, and a negative factor would turn maxima into minima.
  JIT_DEVICE void take(float of_queries, unsigned scales) {
    constexpr float least = 0x1p-100f;
#pragma unroll
    for (int i = 0; i < tile_kv / keys; ++i) {
      const float factor = of_queries * __int_as_float(load_shared(scales + i * 4));
      of_blocks_[i] = factor < 0 ? __int_as_float(0x7fffffff) : max_nan(factor, least);
    }
  }

  /// Multiplies the scores by the factors, and sets these to 1.
  JIT_DEVICE void scale(Scores& scores) {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
#pragma unroll
      for (int n = 0; n < Scores::column_blocks; ++n) {
        scores.at(r, n, 0) *= of(n);
        scores.at(r, n, 1) *= of(n);
      }
    }
#pragma unroll
    for (float& factor : of_blocks_) factor = 1;
  }

  /// The factor of column block `n`.
  JIT_DEVICE float of(int n) const { return of_blocks_[n / column_blocks]; }

  /// The maximum of each row of scores times their factors.
  JIT_DEVICE void maxima(const Scores& scores, float (&of_tile)[Scores::rows]) const {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      of_tile[r] = negative_infinity();
#pragma unroll
      for (int i = 0; i < tile_kv / keys; ++i) {
        float largest = negative_infinity();
#pragma unroll
        for (int n = i * column_blocks; n < (i + 1) * column_blocks; ++n)
          largest = fmaxf(largest, fmaxf(scores.at(r, n, 0), scores.at(r, n, 1)));
        of_tile[r] = fmaxf(of_tile[r], largest * of_blocks_[i]);  // mutate: MaximaWithoutFactors
      }
      of_tile[r] = Scores::Layout::reduce(of_tile[r], [](float x, float y) { return fmaxf(x, y); });
    }
  }

  /// Returns the `subtract` function of `relate_to_maxima` and `take_maxima` (softmax.cuh).
  JIT_DEVICE auto subtract_from(Scores& scores) {
    return [this, &scores](int r, float max) {
      if (r == 0) scale(scores);
      jit::subtract_from(scores)(r, max);
    };
  }

  /// As `exponentiate` of softmax.cuh, of scores times their factors.
  JIT_DEVICE void exponentiate(Scores& scores, SoftmaxState<Scores::rows>& state, float scale_log2,
                               float raise) const {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const float offset = state.offset[r] - raise;
#pragma unroll
      for (int n = 0; n < Scores::column_blocks; ++n) {
        const float scale = of(n) * scale_log2;
        float& x = scores.at(r, n, 0);
        float& y = scores.at(r, n, 1);
        x = ex2(__fmaf_rn(x, scale, -offset));
        y = ex2(__fmaf_rn(y, scale, -offset));
        state.row_sum[r] += x + y;
      }
    }
  }

 private:
  float of_blocks_[tile_kv / keys];
};

/// As `online_softmax` of softmax.cuh, of scores times their factors.
template <Rescale rescale, class Element, class Scores, class Output, int tile_kv>
JIT_DEVICE void online_softmax(Scores& scores, Output& output, SoftmaxState<Scores::rows>& state,
                               float scale_log2, BlockFactors<Scores, tile_kv>& factors) {
  float of_tile[Scores::rows], correction[Scores::rows];
  factors.maxima(scores, of_tile);
  if (take_maxima<rescale, Element>(of_tile, state, scale_log2, correction, factors.subtract_from(scores)))
    output.scale_rows(correction);
  factors.exponentiate(scores, state, scale_log2, probability_raise<Element>);
}

}  // namespace jit
