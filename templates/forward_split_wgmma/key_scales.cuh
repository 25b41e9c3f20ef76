// Where the scales of keys and values of 8 bits go: those of keys into the exponents of a split, that of values into O.
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "split_keys/head_scales.cuh"
#include "steps/score_factor.cuh"

namespace jit::forward_split_wgmma {

/// Keys and values of 16 bits have none.
template <class Config, bool upcasts = KernelTraits<Config>::upcasts>
struct KeyScales {
  using Traits = KernelTraits<Config>;

  __device__ __forceinline__ explicit KeyScales(const AttentionParams&) {}
  /// Before the first tile of a split.
  __device__ __forceinline__ void begin_split(const SplitInfo&) {}
  /// Of products of queries and keys.
  __device__ __forceinline__ void scale_scores(typename Traits::Scores&) const {}
  /// What makes exponents of 2 of the split's scores, where that is `scale_log2` of others.
  __device__ __forceinline__ float of_exponents(float scale_log2) const { return scale_log2; }
  /// Behind the split's last tile.
  __device__ __forceinline__ void scale_output(typename Traits::Output&) const {}
};

template <class Config>
struct KeyScales<Config, true> {
  using Traits = KernelTraits<Config>;

  __device__ __forceinline__ explicit KeyScales(const AttentionParams& params) : descale_(params.descale) {}

  __device__ __forceinline__ void begin_split(const SplitInfo& split) {
    const float k = scale_of_split(descale_.k, descale_.k_strides, split);
    v_ = scale_of_split(descale_.v, descale_.v_strides, split);
    keys_ = Config::Score::is_identity ? score_factor(k)
                                       : ScoreFactor{1.0f, k};  // functors want scores as they are
  }
  __device__ __forceinline__ void scale_scores(typename Traits::Scores& scores) const { keys_.scale(scores); }
  __device__ __forceinline__ float of_exponents(float scale_log2) const {
    return scale_log2 * keys_.exponents;
  }
  __device__ __forceinline__ void scale_output(typename Traits::Output& output) const {
    output.for_each(0, 0, [&](float& value, int, int) { value *= v_; });
  }

 private:
  const DescaleParams& descale_;
  ScoreFactor keys_;
  float v_ = 1;
};

}  // namespace jit::forward_split_wgmma
