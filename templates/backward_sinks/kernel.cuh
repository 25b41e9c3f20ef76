// The gradients of sinks. A sink is a key without a value, whose probability is exp(sink − LSE): of softmax's
// derivative only −delta is left,
//
//     dsink = −Σ exp(sink − LSE) · delta      over the queries of its head
//
// A block sums those of one head in a fixed order: equal inputs give bitwise identical results.
#pragma once

#include "backward_sinks/params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "problem/gradients.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"

namespace jit::backward_sinks {

/// Where in the statistics those of a sequence's queries begin.
template <class Config>
JIT_DEVICE long long first_statistic(const AttentionParams& params, int tile, int batch, int head,
                                     int begin) {
  if constexpr (Config::sequences_q == SequenceKind::varlen) {
    const long long tiles = varlen_tiles(params.batch, params.sequences.total_q, tile);
    return (head * tiles + first_varlen_tile(batch, begin, tile)) * tile;
  } else {
    const long long tiles = (params.seqlen_q + tile - 1) / tile;
    return (static_cast<long long>(batch) * params.heads_q + head) * tiles * tile;
  }
}

template <class Config, int threads>
JIT_DEVICE void sum_sink_gradients(const AttentionParams& params, const GradientParams& gradients,
                                   const QueryStatisticsLayout& layout) {
  __shared__ float sums[threads];
  const int head = blockIdx.x, thread = threadIdx.x;
  const float sink = params.sequences.sinks[head];
  const VariableSequences<Config> sequences(params);
  float sum = 0;
  for (int batch = 0; batch < params.batch; ++batch) {
    const Sequence queries = sequences.q(batch);
    const long long first = first_statistic<Config>(params, layout.tile, batch, head, queries.begin);
    const int rows = (queries.length + layout.tile - 1) / layout.tile * layout.tile;
    for (int row = thread; row < rows; row += threads) {
      float lse_log2 = gradients.lse_log2[first + row], sink_log2 = sink * log2_e;
      const float row_lse = lse_log2;
      if (lse_log2 == -negative_infinity()) {
        // mutate: SinksOfLargeRowsLeftOut
        const RowOrigin origin = gradients.origins[first + row];
        lse_log2 = origin.lse_log2;
        sink_log2 = sink_exponent(sink, origin.max, layout.score_unit);
      }
      const auto delta = [&] {
        const float own = gradients.delta[first + row];
        if constexpr (has_mean_score<Config>) {
          if (layout.has_means) {
            const float lse = row_lse == -negative_infinity() ? 0 : row_lse;
            const float d_mean = mean_statistics(gradients)[first + row];
            return __fmaf_rn(-d_mean, log2_e + lse, own);  // mutate: MeanOfSinksByWgmma
          }
          const TensorStrides& strides = params.outputs.d_mean_score_strides;
          if (row >= queries.length) return own;
          const float d_mean =
              params.outputs.d_mean_score[batch * strides.batch + (queries.begin + row) * strides.seq +
                                          head * strides.head];
          return own + d_mean / layout.factor;  // mutate: MeanLeftOutOfSinks
        }
        return own;
      };
      sum = __fmaf_rn(ex2(sink_log2 - lse_log2), delta(), sum);
    }
  }
  sums[thread] = sum;
#pragma unroll
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();  // mutate: NoBarrierInSinks
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) gradients.d_sinks[head] = -layout.factor * sums[0];  // mutate: SinksWithoutSign
}

}  // namespace jit::backward_sinks
