// The origin that the probabilities of a large row are relative to (steps/large_rows.cuh), for those who read
// it.
#pragma once

#include "base/gradient_params.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// The origin of queries whose lse_log2 is +inf and that are no large rows.
__device__ __forceinline__ RowOrigin no_origin() { return {0, -negative_infinity()}; }
__device__ __forceinline__ bool is_large_row(const RowOrigin& origin) {
  return origin.lse_log2 != -negative_infinity();
}

/// A sink relative to the maximum of an origin, as an exponent of 2. `unit` makes natural units of the maximum.
__device__ __forceinline__ float sink_exponent(float sink, float max, float unit) {
  return __fmaf_rn(-max, unit, sink) * log2_e;
}

}  // namespace jit
