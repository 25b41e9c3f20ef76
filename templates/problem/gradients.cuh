// Rows of gradients, and statistics of queries.
#pragma once

#include "base/element.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/entry_sequences.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Whether an LSE is so large that, as an exponent of 2, its rounding error is 2^-8 or more, too much for probabilities
/// (steps/large_rows.cuh). False for infinities and NaN.
JIT_DEVICE bool is_large_lse(float lse) {
  constexpr float least = 0x1p17f / log2_e, most = 0x1.fffffep127f;
  const float magnitude = ::fabsf(lse);
  return magnitude >= least && magnitude <= most;
}

/// An LSE as an exponent of 2, relative to which probabilities are computed: +inf for a query without keys and for a
/// large row, whose probabilities are then 0 in all main kernels.
JIT_DEVICE float lse_exponent(float lse) {
  return lse == negative_infinity() || is_large_lse(lse) ? -negative_infinity() : lse * log2_e;
}

/// Rows of gradients of one head of a batch entry, as SequenceRows for q, k, v and o.
template <class Config>
class Gradients {
  using Element = typename Config::Element;

 public:
  JIT_DEVICE Gradients(const AttentionParams& params, const GradientParams& gradients,
                       const SequencesOf<Config>& sequences)
      : params_(params), gradients_(gradients), sequences_(sequences) {}

  JIT_DEVICE auto do_rows(int batch, int head) const {
    return rows(static_cast<const Element*>(gradients_.d_o), gradients_.do_strides, batch, head)
        .from(sequences_.q(batch).begin);
  }
  JIT_DEVICE auto dq_rows(int batch, int head) const {
    return rows(static_cast<OutputElement<Config>*>(gradients_.dq), gradients_.dq_strides, batch, head)
        .from(sequences_.q(batch).begin);
  }
  JIT_DEVICE auto dk_rows(int batch, int kv_head) const {
    // mutate: GradientsOfTheFirstSequence
    return rows(static_cast<OutputElement<Config>*>(gradients_.dk), gradients_.dk_strides, batch, kv_head)
        .from(sequences_.kv(batch).begin);
  }
  JIT_DEVICE auto dv_rows(int batch, int kv_head) const {
    return rows(static_cast<OutputElement<Config>*>(gradients_.dv), gradients_.dv_strides, batch, kv_head)
        .from(sequences_.kv(batch).begin);
  }

  /// The gradient of the LSE of a query that has keys.
  JIT_DEVICE float d_lse(int batch, int head, int query) const {
    if (gradients_.d_lse == nullptr) return 0;
    return *rows(gradients_.d_lse, gradients_.d_lse_strides, batch, head)
                .from(sequences_.q(batch).begin)
                .at(query);
  }

  /// The gradient of the mean score of a query, and what it adds to delta.
  JIT_DEVICE float d_mean(int batch, int head, int query) const {
    return of_query(params_.outputs.d_mean_score, params_.outputs.d_mean_score_strides, batch, head, query);
  }
  JIT_DEVICE float d_mean_of_delta(int batch, int head, int query) const {
    const OutputParams& outputs = params_.outputs;
    const float mean = of_query(outputs.mean_score, outputs.mean_score_strides, batch, head, query);
    return d_mean(batch, head, query) * (1 - mean);
  }

  /// Statistics of a head's queries: `statistic_rows` elements each.
  JIT_DEVICE float* lse_log2(int batch, int head) const {
    return gradients_.lse_log2 + first_statistic(batch, head);
  }
  JIT_DEVICE float* delta(int batch, int head) const {
    return gradients_.delta + first_statistic(batch, head);
  }
  JIT_DEVICE RowOrigin* origins(int batch, int head) const {
    return gradients_.origins + first_statistic(batch, head);
  }

 private:
  JIT_DEVICE float of_query(const float* data, const TensorStrides& strides, int batch, int head,
                            int query) const {
    return *rows(data, strides, batch, head).from(sequences_.q(batch).begin).at(query);
  }
  template <class T>
  static JIT_DEVICE DenseRows<T> rows(T* data, const TensorStrides& strides, int batch, int head) {
    return {data + batch * strides.batch + head * strides.head, strides.seq};
  }
  JIT_DEVICE long long first_statistic(int batch, int head) const {
    if constexpr (Config::sequences_q == SequenceKind::varlen) {
      return head * varlen_statistic_rows(params_.batch, params_.sequences.total_q) +
             // mutate: StatisticsOfSequencesOverlap
             first_varlen_statistic(batch, sequences_.q(batch).begin);
    } else {
      return (static_cast<long long>(batch) * params_.heads_q + head) *
             statistic_rows(DenseSequences<Config>::longest_q(params_));
    }
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const SequencesOf<Config>& sequences_;
};

/// The origin of queries whose lse_log2 is +inf and that are no large rows.
JIT_DEVICE RowOrigin no_origin() { return {0, -negative_infinity()}; }
JIT_DEVICE bool is_large_row(const RowOrigin& origin) { return origin.lse_log2 != -negative_infinity(); }

/// A sink relative to the maximum of an origin, as an exponent of 2. `unit` makes natural units of the maximum.
JIT_DEVICE float sink_exponent(float sink, float max, float unit) {
  return __fmaf_rn(-max, unit, sink) * log2_e;
}

}  // namespace jit
