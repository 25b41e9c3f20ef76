// Gradients the slow and plain way, to check the fast kernels against: one warp per row of dq, or of dk and dv, 32 pairs
// of a query and a key at a time, fp32 throughout. It reads o and lse as they do. It shares the masks' `keep`, the
// scores' `apply` with its derivative and the places of rows with them and nothing else.
#pragma once

#include "base/dropout_params.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "checks/reference_rows.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/sequences.cuh"
#include "steps/dropout.cuh"

namespace jit {

/// Addends of a pair: P with dropout times do to dv, dS times q to dk, and dS times k to dq.
struct PairGradient {
  float p;
  float ds;
};

/// Pairs of one query head of a batch entry, as one lane sees them.
template <class Config>
class ReferencePairs {
  using Element = typename Config::Element;

 public:
  __device__ ReferencePairs(const AttentionParams& params, const GradientParams& gradient_params,
                            const DropoutParams& dropout_params, int batch, int head)
      : sequences_(params),
        gradients_(params, gradient_params, sequences_),
        context_(sequences_.context(batch, head)),
        mask_(context_),
        score_(context_),
        dropout_(dropout_head<Config>(dropout_params, params.heads_q, batch, head, params.tensors)),
        dropout_scale_(dropout_params.scale),
        softmax_scale_(params.softmax_scale),
        batch_(batch),
        head_(head) {}

  __device__ PairGradient operator()(int query, int key) const {
    if (query >= context_.seqlen_q || key >= context_.seqlen_kv || !mask_.keep(query, key)) return {0, 0};
    const int kv_head = sequences_.kv_head(head_);
    const Element* const d_o = d_o_row(query);
    const float dp = dot<Config::head_dim_v>(d_o, sequences_.value_rows(batch_, kv_head).at(key));
    const float delta = dot<Config::head_dim_v>(d_o, sequences_.output_rows(batch_, head_).at(query));
    const Dual applied = score(query, key);
    const float p = probability(query, applied.value, *sequences_.lse_rows(batch_, head_).at(query));
    if (p == 0) return {0, 0};  // also of scores of −inf, whose derivative may be anything
    float kept = 1;
    if constexpr (has_dropout<Config>) kept = dropout_.keeps(query, key) ? dropout_scale_ : 0;
    return {p * kept, p * (dp * kept - delta) * applied.derivative * softmax_scale_};
  }

  __device__ const Element* q_row(int query) const { return sequences_.query_rows(batch_, head_).at(query); }
  __device__ const Element* k_row(int key) const {
    return sequences_.key_rows(batch_, sequences_.kv_head(head_)).at(key);
  }
  __device__ const Element* d_o_row(int query) const { return gradients_.do_rows(batch_, head_).at(query); }
  __device__ int seqlen_q() const { return context_.seqlen_q; }
  __device__ int seqlen_kv() const { return context_.seqlen_kv; }

 private:
  __device__ Dual score(int query, int key) const {
    const float s = dot<Config::head_dim>(q_row(query), k_row(key));
    Dual applied = score_.apply(Dual(s * softmax_scale_, 1.0f), query, key);
    // Equal wherever it is computed: no caller's operations are fused with these.
    asm volatile("" : "+f"(applied.value), "+f"(applied.derivative));
    return applied;
  }
  // The probability of a score. If LSE has rounded its logarithm away, the row is computed once more.
  __device__ float probability(int query, float value, float lse) const {
    constexpr float large = 0x1p16f;
    if (!(::fabsf(lse) >= large)) return ::expf(value - lse);
    float max = negative_infinity(), sum = 0;
    for (int key = 0; key < context_.seqlen_kv; ++key)
      if (mask_.keep(query, key)) max = ::fmaxf(max, score(query, key).value);
    for (int key = 0; key < context_.seqlen_kv; ++key)
      if (mask_.keep(query, key)) sum += ::expf(score(query, key).value - max);
    return ::expf(value - max) / sum;
  }
  // o may be fp32 beside 16-bit do.
  template <int elements, class Other>
  static __device__ float dot(const Element* a, const Other* b) {
    float sum = 0;
    for (int d = 0; d < elements; ++d) sum += to_float(a[d]) * to_float(b[d]);
    return sum;
  }

  const DenseSequences<Config> sequences_;
  const Gradients<Config> gradients_;
  const BlockContext context_;
  const typename Config::Mask mask_;
  const typename Config::Score score_;
  const decltype(dropout_head<Config>(DropoutParams{}, 0, 0, 0, nullptr)) dropout_;
  const float dropout_scale_, softmax_scale_;
  const int batch_, head_;
};

/// A row of a gradient, which a warp sums: lane l has elements l, l + 32 …
template <int elements>
class ReferenceRow {
 public:
  /// Adds rows of tensors: lane j has the weight of row j.
  template <class RowAt>
  __device__ void add(float weight, RowAt row_at) {
    for (int j = 0; j < warp_size; ++j) {
      const float own = __shfl_sync(full_warp, weight, j);
      if (own == 0) continue;
      const auto* row = row_at(j);
      for (int i = 0; i < per_lane; ++i) {
        const int d = i * warp_size + lane_id();
        if (d < elements) sums_[i] += own * to_float(row[d]);
      }
    }
  }
  __device__ void store(float* row) const {
    for (int i = 0; i < per_lane; ++i) {
      const int d = i * warp_size + lane_id();
      if (d < elements) row[d] = sums_[i];
    }
  }

 private:
  static constexpr int per_lane = (elements + warp_size - 1) / warp_size;
  float sums_[per_lane] = {};
};

template <class Config>
__device__ void gradient_reference(const AttentionParams& params, const GradientParams& gradients,
                                   const ReferenceGradientRows& rows) {
  const DropoutParams& dropout = params.dropout;
  const long long row = blockIdx.x * static_cast<long long>(blockDim.x / warp_size) + warp_id();
  if (row >= rows.queries + rows.keys) return;
  const bool is_query = row < rows.queries;
  const long long sample = is_query ? row : row - rows.queries;
  const int heads = is_query ? params.heads_q : params.heads_q / Config::gqa_ratio;
  const int length = is_query ? params.seqlen_q : params.seqlen_kv;
  const long long flat = sample * rows.step % (static_cast<long long>(params.batch) * heads * length);
  const int own = static_cast<int>(flat % length), head = static_cast<int>(flat / length % heads),
            batch = static_cast<int>(flat / length / heads);

  if (is_query) {
    const ReferencePairs<Config> pairs(params, gradients, dropout, batch, head);
    ReferenceRow<Config::head_dim> dq;
    for (int begin = 0; begin < pairs.seqlen_kv(); begin += warp_size)
      dq.add(pairs(own, begin + lane_id()).ds, [&](int j) { return pairs.k_row(begin + j); });
    dq.store(rows.dq + sample * Config::head_dim);
    return;
  }
  ReferenceRow<Config::head_dim> dk;
  ReferenceRow<Config::head_dim_v> dv;
  for (int i = 0; i < Config::gqa_ratio; ++i) {
    const ReferencePairs<Config> pairs(params, gradients, dropout, batch, head * Config::gqa_ratio + i);
    for (int begin = 0; begin < pairs.seqlen_q(); begin += warp_size) {
      const PairGradient pair = pairs(begin + lane_id(), own);
      dk.add(pair.ds, [&](int j) { return pairs.q_row(begin + j); });
      dv.add(pair.p, [&](int j) { return pairs.d_o_row(begin + j); });
    }
  }
  dk.store(rows.dk + sample * Config::head_dim);
  dv.store(rows.dv + sample * Config::head_dim_v);
}

}  // namespace jit
