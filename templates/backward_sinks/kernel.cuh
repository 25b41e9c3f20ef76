// The gradients of sinks. A sink is a key without a value, whose probability is exp(sink − LSE): of softmax's
// derivative only −delta is left,
//
//     dsink = −Σ exp(sink − LSE) · delta      over the queries of its head
//
// A block sums those of one head in a fixed order: equal inputs give equal bits.
#pragma once

#include "backward_sinks/params.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit::backward_sinks {

template <int threads>
__device__ __forceinline__ void sum_sink_gradients(const SinkGradientParams& params) {
  __shared__ float sums[threads];
  const int head = blockIdx.x, thread = threadIdx.x;
  const float sink_log2 = params.sinks[head] * log2_e;
  float sum = 0;
  for (int batch = 0; batch < params.batch; ++batch) {
    const long long first = (static_cast<long long>(batch) * params.heads + head) * params.rows;
    for (long long row = thread; row < params.rows; row += threads)
      sum = __fmaf_rn(ex2(sink_log2 - params.lse_log2[first + row]), params.delta[first + row], sum);
  }
  sums[thread] = sum;
#pragma unroll
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) params.d_sinks[head] = -params.sign * sums[0];
}

}  // namespace jit::backward_sinks
