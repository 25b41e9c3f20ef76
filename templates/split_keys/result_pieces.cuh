// Pieces of rows of O that some keys came to, and how results of different keys are summed.
//
// A result of some keys is, for each row, O not normalized, the maximum m of its scores and the sum l of its
// exponentials relative to m. Results of different keys are merged as "Flash-Decoding" (Dao et al.) does:
// M = max m, O = Σ exp(m − M) O, L = Σ exp(m − M) l.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "split_keys/row_end.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Four neighboring values of a row of O, and the row's state.
struct RowPiece {
  float4 values;
  RowState state;
};

// mutate: WaitsForNoWord
__device__ __forceinline__ bool is_empty(unsigned word) { return word == empty_word; }

/// Whether a word of it is empty.
__device__ __forceinline__ bool is_missing(const RowPiece& piece) {
  const unsigned words[] = {__float_as_uint(piece.values.x),  __float_as_uint(piece.values.y),
                            __float_as_uint(piece.values.z),  __float_as_uint(piece.values.w),
                            __float_as_uint(piece.state.max), __float_as_uint(piece.state.sum)};
  unsigned most = 0;
#pragma unroll
  for (const unsigned word : words) most = maximum(most, word);
  return is_empty(most);  // mutate: WaitsForNothing
}

/// Adds `weight` times the values, unless it is 0: 0 · v is not 0 where v is not a number.
__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& values) {
  const bool counts = weight != 0;
  sum.x = counts ? __fmaf_rn(weight, values.x, sum.x) : sum.x;
  sum.y = counts ? __fmaf_rn(weight, values.y, sum.y) : sum.y;
  sum.z = counts ? __fmaf_rn(weight, values.z, sum.z) : sum.z;
  sum.w = counts ? __fmaf_rn(weight, values.w, sum.w) : sum.w;
}

/// How much a result counts beside one whose maximum is `max`.
__device__ __forceinline__ float weight_of(const RowState& state, float max) {
  return ex2(state.max == negative_infinity() ? state.max : (state.max - max) * log2_e);
}

/// How much two results count, of which one stands behind the other.
struct JoinWeights {
  float left;
  float right;

  /// The sum of two values; exactly one of them where the other one's result has no keys.
  __device__ __forceinline__ float sum(float x, float y) const {
    const float both = __fmaf_rn(right, y, __fmul_rn(left, x));
    const float sum = left == 0 ? y : both;
    return right == 0 ? x : sum;
  }
};

/// The weights of a result and one behind it; `state` becomes that of both.
__device__ __forceinline__ JoinWeights join_states(const RowState& left, RowState& state) {
  const float max = fmaxf(left.max, state.max);
  const JoinWeights weights{weight_of(left, max), weight_of(state, max)};
  state = {max, weights.sum(left.sum, state.sum)};
  return weights;
}

__device__ __forceinline__ RowPiece join(const RowPiece& left, const RowPiece& right) {
  RowPiece both = right;
  const JoinWeights weights = join_states(left.state, both.state);
  both.values.x = weights.sum(left.values.x, right.values.x);
  both.values.y = weights.sum(left.values.y, right.values.y);
  both.values.z = weights.sum(left.values.z, right.values.z);
  both.values.w = weights.sum(left.values.w, right.values.w);
  return both;
}

}  // namespace jit
