// What queries, keys and values of 8 bits are multiplied by. Their elements are not: the scales of a query and a key
// multiply their score, that of a value its probability, or the output where all values of a head have one. Those of columns
// of values are multiplied by where rows of O end (split_keys/row_end.cuh). A row of queries has a factor for being
// fp16, too (kv_products.cuh).
#pragma once

#include "base/descale_params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/head_scales.cuh"
#include "split_keys/kv_products.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/warp_layout.cuh"
#include "steps/head_scales.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Keys and values without scales.
template <class KernelTraits, bool has_fp8 = keys_are_fp8<typename KernelTraits::Config>,
          bool has_each = has_row_scales<typename KernelTraits::Config>,
          bool has_value_scales = KernelTraits::has_value_scales>
struct KvScales {
  using Traits = KernelTraits;
  using Scores = typename Traits::Scores;
  using Queries = typename KvProducts<Traits>::Queries;

  __device__ __forceinline__ explicit KvScales(const AttentionParams&) {}
  /// Before the first step of a split, whose queries these are.
  __device__ __forceinline__ void begin_split(const SplitInfo&, const Queries&) {}
  /// Of a warp's scores, whose first key is key `first_key` of the stage at this shared address.
  __device__ __forceinline__ void scale_scores(Scores&, unsigned /*stage*/, int /*first_key*/) const {}
  /// Of their exponentials, which were summed.
  __device__ __forceinline__ void scale_weights(Scores&, unsigned /*stage*/, int /*first_key*/) const {}
  /// Behind the last step of a split.
  __device__ __forceinline__ void scale_output(typename Traits::Output&) const {}
};

/// That of all values of a split; 1 where columns have their own.
template <class Config>
__device__ __forceinline__ float value_scale(const DescaleParams& descale, const SplitInfo& split) {
  return has_channel_scales<Config> ? 1 : scale_of_split(descale.v, descale.v_strides, split);
}

/// One scale for all keys of a split, and its queries of 8 bits, and one for all values.
template <class KernelTraits>
struct KvScales<KernelTraits, true, false, false> {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Queries = typename KvProducts<Traits>::Queries;

  __device__ __forceinline__ explicit KvScales(const AttentionParams& params) : descale_(params.descale) {}

  __device__ __forceinline__ void begin_split(const SplitInfo& split, const Queries& q) {
    float k = scale_of_split(descale_.k, descale_.k_strides, split);
    if constexpr (is_fp8<typename Config::Element>) {
      k *= scale_of_split(descale_.q, descale_.q_strides, split);
      if (k < 0) k = __int_as_float(0x7fffffff);  // as in families to which maxima would be minima
    }
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) of_rows_[r] = k * q.factors[r];
    v_ = value_scale<Config>(descale_, split);
  }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned, int) const {
    scores.scale_rows(of_rows_);
  }
  __device__ __forceinline__ void scale_weights(Scores&, unsigned, int) const {}
  __device__ __forceinline__ void scale_output(typename Traits::Output& output) const {
    output.for_each(0, 0, [&](float& value, int, int) { value *= v_; });
  }

 private:
  const DescaleParams& descale_;
  float of_rows_[Scores::rows] = {};
  float v_ = 1;
};

/// A scale for each key and one for each value, which lie in the stage behind these.
template <class KernelTraits>
struct KvScales<KernelTraits, true, true, true> {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Queries = typename KvProducts<Traits>::Queries;

  __device__ __forceinline__ explicit KvScales(const AttentionParams&) {}
  __device__ __forceinline__ void begin_split(const SplitInfo&, const Queries& q) {
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) of_queries_[r] = q.factors[r];
  }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned stage, int first_key) const {
    const int first = first_key + Scores::Layout::lane_column(lane_id());
    scale_by_rows(scores, of_queries_, stage + Traits::layout.k_scales + first * 4);
  }
  __device__ __forceinline__ void scale_weights(Scores& p, unsigned stage, int first_key) const {
    scale_columns(p, stage + Traits::layout.v_scales + first_key * 4);
  }
  __device__ __forceinline__ void scale_output(typename Traits::Output&) const {}

 private:
  static __device__ __forceinline__ void scale_columns(Scores& scores, unsigned scales) {
    using Layout = typename Scores::Layout;
    const unsigned own = scales + Layout::lane_column(lane_id()) * 4;
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
      int pair[2];
      load_shared(pair, own + Layout::column(0, n, 0) * 4);
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) {
        scores.at(r, n, 0) *= __int_as_float(pair[0]);
        scores.at(r, n, 1) *= __int_as_float(pair[1]);
      }
    }
  }

  float of_queries_[Scores::rows] = {};
};

/// A scale for each query, or block of them, which a lane keeps for its rows, and one for each key, which lie in the stage; one
/// for all values of a split.
template <class KernelTraits>
struct KvScales<KernelTraits, true, true, false> {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Queries = typename KvProducts<Traits>::Queries;
  using Layout = typename Scores::Layout;

  __device__ __forceinline__ explicit KvScales(const AttentionParams& params) : descale_(params.descale) {}

  __device__ __forceinline__ void begin_split(const SplitInfo& split, const Queries&) {
    v_ = value_scale<Config>(descale_, split);
    const int first = split.row_begin + warp_id() % Config::row_warps * rows_per_warp;
    Scores::for_each_row(first + Layout::lane_row(lane_id()), [&](int r, int row) {
      const PackedRow<Config> place(split.kv_head, minimum(row, split.q.length * Config::gqa_ratio - 1));
      const int query = split.q.begin + place.query;
      of_queries_[r] = descale_.q[VariableSequences<Config>::query_offset(
          // mutate: ScaleOfQuery
          descale_.q_strides, split.batch, place.head, query / rows_of_scale<Config>)];
    });
  }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned stage, int first_key) const {
    scale_by_rows(scores, of_queries_,
                  // mutate: ScalesOfTheFirstKeys
                  stage + Traits::layout.k_scales + (first_key + Layout::lane_column(lane_id())) * 4);
  }
  __device__ __forceinline__ void scale_weights(Scores&, unsigned, int) const {}
  __device__ __forceinline__ void scale_output(typename Traits::Output& output) const {
    output.for_each(0, 0, [&](float& value, int, int) { value *= v_; });
  }

 private:
  const DescaleParams& descale_;
  float of_queries_[Scores::rows] = {};
  float v_ = 1;
};

}  // namespace jit
