// Where the rows of gradients lie, and what is known of each query.
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/entry_sequences.cuh"

namespace jit {

/// An LSE as an exponent of 2, which probabilities are relative to: +inf for a query without keys.
///
/// Large LSEs have no fraction, and the exponent of the largest score is what is rounded off, of either sign.
/// So that no probability is more than 1 they are raised by more than the LSE, its product here and the score's factor are
/// rounded by, which is less than 2^-22 of them: the gradients of such a query are finite, and vanish as its scores grow.
__device__ __forceinline__ float lse_exponent(float lse) {
  constexpr float without_fraction = 0x1p24f, rounded_off = 0x1p-21f;
  if (lse == negative_infinity()) return -negative_infinity();
  const float exponent = lse * log2_e, magnitude = ::fabsf(exponent);
  return magnitude < without_fraction ? exponent : __fmaf_rn(magnitude, rounded_off, exponent);
}

/// Rows of one head of one batch entry, as its sequences give those of q, k, v and o.
template <class Config>
class Gradients {
  using Element = typename Config::Element;

 public:
  __device__ __forceinline__ Gradients(const AttentionParams& params, const GradientParams& gradients,
                                       const SequencesOf<Config>& sequences)
      : params_(params), gradients_(gradients), sequences_(sequences) {}

  __device__ __forceinline__ auto do_rows(int batch, int head) const {
    return rows(static_cast<const Element*>(gradients_.d_o), gradients_.do_strides, batch, head)
        .from(sequences_.q(batch).begin);
  }
  __device__ __forceinline__ auto dq_rows(int batch, int head) const {
    return rows(static_cast<Element*>(gradients_.dq), gradients_.dq_strides, batch, head)
        .from(sequences_.q(batch).begin);
  }
  __device__ __forceinline__ auto dk_rows(int batch, int kv_head) const {
    // mutate: GradientsOfTheFirstSequence
    return rows(static_cast<Element*>(gradients_.dk), gradients_.dk_strides, batch, kv_head)
        .from(sequences_.kv(batch).begin);
  }
  __device__ __forceinline__ auto dv_rows(int batch, int kv_head) const {
    return rows(static_cast<Element*>(gradients_.dv), gradients_.dv_strides, batch, kv_head)
        .from(sequences_.kv(batch).begin);
  }

  /// The gradient of the LSE of a query that has keys.
  __device__ __forceinline__ float d_lse(int batch, int head, int query) const {
    if (gradients_.d_lse == nullptr) return 0;
    return *rows(gradients_.d_lse, gradients_.d_lse_strides, batch, head)
                .from(sequences_.q(batch).begin)
                .at(query);
  }

  /// The number of each query of a head, of which there are `statistic_rows`.
  __device__ __forceinline__ float* lse_log2(int batch, int head) const {
    return gradients_.lse_log2 + first_statistic(batch, head);
  }
  __device__ __forceinline__ float* delta(int batch, int head) const {
    return gradients_.delta + first_statistic(batch, head);
  }

 private:
  template <class T>
  static __device__ __forceinline__ DenseRows<T> rows(T* data, const TensorStrides& strides, int batch,
                                                      int head) {
    return {data + batch * strides.batch + head * strides.head, strides.seq};
  }
  __device__ __forceinline__ long long first_statistic(int batch, int head) const {
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

}  // namespace jit
