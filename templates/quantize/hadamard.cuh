// Rows times an orthogonal matrix: random signs, then Sylvester's Hadamard matrix over sqrt(columns). Of q and k alike
// their products stay what they are, and a large element is spread over its row ("QuIP#", Tseng et al.; FlashAttention-3).
#pragma once

#include "base/prelude.cuh"
#include "base/row_lanes.cuh"

namespace jit {

/// 1 / sqrt(2^n).
constexpr float rotation_factor(int columns) {
  float factor = 1;
  for (; columns >= 4; columns /= 4) factor /= 2;
  return columns == 2 ? factor * 0.70710678118654752f : factor;
}

/// `x` is what lane `lane` of the row's has of it. By whole warps.
template <RowLanes share>
JIT_DEVICE void rotate_row(float (&x)[share.iterations][share.piece], const unsigned (&signs)[8], int lane) {
#pragma unroll
  for (int iteration = 0; iteration < share.iterations; ++iteration) {
    const int column = (iteration * share.lanes + lane) * share.piece;
    const unsigned word = signs[column / 32] >> column % 32;
#pragma unroll
    for (int i = 0; i < share.piece; ++i) {
      const unsigned sign = (word >> i & 1) << 31;
      x[iteration][i] = __int_as_float(__float_as_int(x[iteration][i]) ^ static_cast<int>(sign));
    }
#pragma unroll
    for (int step = 1; step < share.piece; step *= 2) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        if ((i & step) != 0) continue;
        const float a = x[iteration][i], b = x[iteration][i + step];
        x[iteration][i] = a + b;
        x[iteration][i + step] = a - b;
      }
    }
#pragma unroll
    for (int step = 1; step < share.lanes; step *= 2) {
      const float own = (lane & step) != 0 ? -1.0f : 1.0f;
#pragma unroll
      for (int i = 0; i < share.piece; ++i)
        x[iteration][i] = __fmaf_rn(own, x[iteration][i], __shfl_xor_sync(full_warp, x[iteration][i], step));
    }
  }
#pragma unroll
  for (int step = 1; step < share.iterations; step *= 2) {
#pragma unroll
    for (int iteration = 0; iteration < share.iterations; ++iteration) {
      if ((iteration & step) != 0) continue;
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        const float a = x[iteration][i], b = x[iteration + step][i];
        x[iteration][i] = a + b;
        x[iteration + step][i] = a - b;
      }
    }
  }
  constexpr float factor = rotation_factor(share.pieces * share.piece);
#pragma unroll
  for (int iteration = 0; iteration < share.iterations; ++iteration) {
#pragma unroll
    for (int i = 0; i < share.piece; ++i) x[iteration][i] *= factor;
  }
}

}  // namespace jit
