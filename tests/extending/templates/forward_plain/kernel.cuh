// Attention forward in plain C++: a thread for each query, one key after another, fp32 throughout.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/sequences.cuh"
#include "ptx/math.cuh"

namespace jit::forward_plain {

/// `sums` has head_dim_v floats for each query of each head.
template <class Config>
__device__ void attention_forward(const AttentionParams& params, float* sums) {
  const DenseSequences<Config> sequences(params);
  const int query = blockIdx.x * Config::queries + threadIdx.x;
  const int head = blockIdx.y, batch = blockIdx.z;
  const BlockContext context = sequences.context(batch, head);
  if (query >= context.seqlen_q) return;

  const typename Config::Mask mask(context);
  const typename Config::Score score(context);
  const int kv_head = sequences.kv_head(head);
  const auto* q = sequences.query_rows(batch, head).at(query);
  const long long slice = static_cast<long long>(batch) * params.heads_q + head;
  float* sum = sums + (slice * context.seqlen_q + query) * Config::head_dim_v;
  for (int d = 0; d < Config::head_dim_v; ++d) sum[d] = 0;

  float row_max = negative_infinity(), row_sum = 0;
  for (int key = 0; key < context.seqlen_kv; ++key) {
    if (!mask.keep(query, key)) continue;
    const auto* k = sequences.key_rows(batch, kv_head).at(key);
    const auto* v = sequences.value_rows(batch, kv_head).at(key);
    float dot = 0;
    for (int d = 0; d < Config::head_dim; ++d) dot += to_float(q[d]) * to_float(k[d]);
    const float s = score.apply(dot * params.softmax_scale, query, key);
    const float new_max = fmaxf(row_max, s);
    if (new_max == negative_infinity()) continue;
    const float correction = expf(row_max - new_max), p = expf(s - new_max);
    row_max = new_max;
    row_sum = row_sum * correction + p;
    for (int d = 0; d < Config::head_dim_v; ++d) sum[d] = sum[d] * correction + p * to_float(v[d]);
  }

  const float inverse = row_sum == 0 ? 0 : 1 / row_sum;
  auto* o = reinterpret_cast<unsigned*>(sequences.output_rows(batch, head).at(query));
  for (int d = 0; d < Config::head_dim_v; d += 2)
    o[d / 2] = pack<typename Config::Element>(sum[d] * inverse, sum[d + 1] * inverse);
  if (params.lse != nullptr)
    *sequences.lse_rows(batch, head).at(query) = row_sum == 0 ? negative_infinity() : row_max + logf(row_sum);
}

}  // namespace jit::forward_plain
